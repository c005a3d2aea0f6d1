"""``runbook plan-memory``: what a model would take on a card under a stack's vLLM, before anything is started or fetched."""

from pathlib import Path
from typing import Annotated

import typer

from runbook.errors import BadParameter
from runbook.forms import Form


def plan_memory(
    model: Annotated[
        str, typer.Option("--model", help="Folder of a checkpoint, a generated model's name, or a hub id.")
    ],
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu", metavar="NAME", help='Card, as "RTX 4090" or H200; default: the one in this machine.'
        ),
    ] = "",
    gpu_memory_mib: Annotated[
        int | None,
        typer.Option(
            "--gpu-memory-mib",
            min=1,
            help="Memory as nvidia-smi prints its total; on a CPU stack, RAM of the node.",
        ),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory-utilization", help="Share of it that vLLM may take; default: the stack's, else 0.9."
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option("--max-model-len", min=1, help="Longest sequence, in tokens; default: the stack's."),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            "--max-num-seqs", min=1, help="Sequences that may run at once; default: vLLM's for the card."
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-num-batched-tokens", min=1, help="Tokens of one step; default: vLLM's for the card."
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", min=1, help="GPUs one server is divided over.")
    ] = 1,
    gpus: Annotated[
        int, typer.Option("--gpus", min=1, help="Equal cards to divide into replicas; shows every way.")
    ] = 1,
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", help="auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16, ...")
    ] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, bfloat16, float16 or float32.")] = "auto",
    mamba_ssm_cache_dtype: Annotated[
        str,
        typer.Option("--mamba-ssm-cache-dtype", help="Type of the recurrent state; auto takes the config's."),
    ] = "auto",
    text_only: Annotated[
        bool, typer.Option("--text-only", help="No pictures: --language-model-only or limits of 0.")
    ] = False,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs.")] = False,
    prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--enable-prefix-caching/--no-enable-prefix-caching", help="Default: the release's own."
        ),
    ] = None,
    block_size: Annotated[
        int | None, typer.Option("--block-size", min=1, help="Tokens of a block, where it is given.")
    ] = None,
    num_speculative_tokens: Annotated[
        int,
        typer.Option(
            "--num-speculative-tokens", min=0, help="Tokens drafted by the MTP block; 0 leaves it out."
        ),
    ] = 0,
    kv_cache_memory_bytes: Annotated[
        int | None,
        typer.Option("--kv-cache-memory-bytes", min=1, help="Bytes of the cache, instead of a share."),
    ] = None,
    want: Annotated[
        int | None,
        typer.Option(
            "--want", min=1, metavar="N", help="Sequences you want at once: says how long each may be."
        ),
    ] = None,
    stack: Annotated[
        str,
        typer.Option(
            "--stack", help="Whose vLLM serves it; auto: this machine's, or the mission's with --gpu."
        ),
    ] = "auto",
    chart: Annotated[
        Path | None, typer.Option("--chart", metavar="FILE.svg", help="Also write the chart as a picture.")
    ] = None,
    format_: Annotated[Form, typer.Option("--format", help="How the plan is printed.")] = Form.TEXT,
) -> None:
    """Say whether a model fits, how many tokens and sequences, which limit binds and what a change would bring. Exit code 1: it does not fit."""
    from runbook import planned, workspace
    from runbook.memory import cache, plan, render, stacked

    work = workspace.workspace()
    on = planned.device_of(work, stack, gpu, gpu_memory_mib)
    subject = planned.subject_of(work, model, dtype)
    ask = stacked.ask_of(
        on.stack,
        cache.Choice(
            tensor_parallel_size,
            kv_cache_dtype,
            mamba_ssm_cache_dtype,
            block_size,
            prefix_caching,
            num_speculative_tokens,
        ),
        text_only=text_only or not subject.vision,
        eager=enforce_eager,
        utilization=gpu_memory_utilization,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        cache_bytes=kv_cache_memory_bytes or planned.cache_of_environment(on.device),
        own_server=not gpu and gpu_memory_mib is None,
        positions=subject.model.geometry.positions,
    )
    if num_speculative_tokens and not subject.model.geometry.mtp:
        raise BadParameter(
            "--num-speculative-tokens with a checkpoint that has no MTP block",
            "a checkpoint whose config has mtp_num_hidden_layers",
            "leave it out (pitfall P19: re-quantised copies lose the block)",
        )
    made = plan.make(subject.model, on.device, ask)
    changes = plan.changes(subject.model, on.device, made)
    places = plan.placements(subject.model, on.device, ask, gpus) if gpus > 1 else []
    made = planned.noted(made, (*on.notes, *subject.notes, *planned.calibration(work, on.stack.name)))
    if chart is not None:
        if not chart.parent.is_dir():
            raise BadParameter(
                f"--chart {chart}: no folder {chart.parent}", "a file in a folder that is there", "make it"
            )
        workspace.write_whole(chart, render.svg(made, subject.name))
    if format_ is Form.JSON:
        typer.echo(render.json_text(made, subject.name, changes, places, want), nl=False)
    else:
        typer.echo(render.text(made, subject.name, changes, places, want), nl=False)
    raise typer.Exit(0 if made.fits else 1)
