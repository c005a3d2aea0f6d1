"""What is known of a server that runs: its start, its latency, its limits, its promises. Facts and judgement, no input or output."""
