"""Run by the target interpreter: does the tokenizer load, come back unchanged, and render its chat template?

``--path DIR``. Prints one JSON object.
"""

import argparse
import json

TEXTS = (
    "A plain line.",
    "\N{CJK UNIFIED IDEOGRAPH-591A}\N{CJK UNIFIED IDEOGRAPH-8BED}\N{FULLWIDTH COMMA}\N{IDEOGRAPHIC FULL STOP}",
    "emoji \N{ROCKET} and\ttabs\n",
)


def main() -> None:
    """Print the facts, or why the tokenizer does not load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    path = parser.parse_args().path
    try:
        import transformers
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        back = [tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text for text in TEXTS]
        messages = [{"role": "user", "content": "Hi"}]
        rendered = {
            name: tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=on
            )
            for name, on in (("thinking", True), ("plain", False))
        }
        facts = {
            "transformers": transformers.__version__,
            "class": type(tokenizer).__name__,
            "length": len(tokenizer),
            "round_trips": back,
            "eos": tokenizer.eos_token,
            "eos_id": tokenizer.eos_token_id,
            "template": rendered,
        }
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps(facts, ensure_ascii=False))


if __name__ == "__main__":
    main()
