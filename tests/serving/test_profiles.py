"""Launch profiles: on every stack the release takes every flag, each value follows from a number, what is lacking is said."""

import json
from dataclasses import replace
from itertools import product

import pytest

from runbook import launch, pins, tables
from runbook.checks.vllm import shipped
from runbook.errors import BadParameter
from runbook.launch import Flag
from runbook.parse import vllm_flags
from runbook.parse.vllm_flags import Command, Option
from runbook.serving import profiles
from runbook.serving.profiles import Planned, Room, Served

STACKS = pins.names()
GPU, CPU, OLD_CPU = "vllm-0.19.1-cu128", "vllm-0.32.0-cpu", "vllm-0.19.1-cpu"
QWEN = Served("qwen3_5", vision=True, hybrid=True, positions=262_144, thinking="on", reasoning="qwen3", tool="qwen3_coder", mtp=True)  # fmt: skip
SMALL = replace(QWEN, thinking="off")
PLAIN = replace(QWEN, model_type="llama", vision=False, positions=8192, thinking="no switch", reasoning="", tool="", mtp=False)  # fmt: skip
# An H200 with the 9B (docs/memory.md): 102 sequences of 32,768 tokens, 1,024 is vLLM's own limit there.
H200 = Room(1024, lambda length: 12_677 / (-(-length // 272) + 3), lambda count: (12_677 // count - 3) * 272)


def options(stack: str) -> tuple[Option, ...]:
    found = shipped(pins.stack(stack))
    assert found is not None
    return found.options


def planned(profile: str, stack: str, served: Served = QWEN, room: Room | None = H200) -> Planned:
    one = pins.stack(stack)
    names = {name for each in options(stack) for name in each.names}
    own = launch.flags(one), launch.variables(one)
    return profiles.plan(profile, one.device, own, served, room, names, one.vllm)


def values(made: Planned) -> dict[str, str]:
    return {one.flag: one.value for one in made.flags}


def whole(stack: str, made: Planned) -> Command:
    words = launch.argv(pins.stack(stack), "python", "/m", "served", 8000, planned=made.flags)
    found = vllm_flags.command(words)
    assert found is not None
    return found


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("profile", profiles.WHAT)
def test_every_release_takes_every_flag_of_every_profile(profile: str, stack: str) -> None:
    for served, room in product((QWEN, SMALL, PLAIN), (H200, None)):
        made = planned(profile, stack, served, room)
        found = vllm_flags.judge(whole(stack, made), options(stack), tables.vllm_flags())
        assert [one for one in found if one.refused or one.outcome is vllm_flags.Outcome.DEPRECATED] == []
        assert len({one.flag for one in made.flags}) == len(made.flags)
        assert all(one.why for one in made.flags)
        assert all(one.why for one in made.variables)


@pytest.mark.parametrize("stack", STACKS)
def test_baseline_is_the_manifest_and_nothing_else(stack: str) -> None:
    made, one = planned(profiles.BASELINE, stack), pins.stack(stack)
    assert (made.flags, made.variables, made.left) == (launch.flags(one), launch.variables(one), ())
    words = launch.argv(one, "python", "/m", "served", 8000)
    assert words == launch.argv(one, "python", "/m", "served", 8000, planned=made.flags)


@pytest.mark.parametrize("stack", STACKS)
def test_a_flag_that_a_release_lacks_is_left_out_and_said(stack: str) -> None:
    one = pins.stack(stack)
    names = {name for each in options(stack) for name in each.names} - {"--generation-config"}
    own = launch.flags(one), launch.variables(one)
    made = profiles.plan(profiles.RL_ROLLOUT, one.device, own, QWEN, H200, names, one.vllm)
    assert "--generation-config" not in values(made)
    assert f"--generation-config is left out: vLLM {one.vllm} does not have it" in made.left
    assert "--logprobs-mode" in values(made)


def test_throughput_takes_the_sequences_that_the_cache_holds() -> None:
    # A quarter of 32,768 is 8,192 tokens: 31 blocks and 3 of state, 372 times in 12,677.
    made = planned(profiles.THROUGHPUT, GPU)
    assert values(made)["--max-num-seqs"] == "372"
    assert "the cache holds 373 of 8,192 tokens" in {one.flag: one.why for one in made.flags}["--max-num-seqs"]  # fmt: skip
    limited = planned(profiles.THROUGHPUT, CPU)
    assert values(limited)["--max-num-seqs"] == "1024"
    few = planned(profiles.THROUGHPUT, GPU, room=Room(1024, lambda _: 1.4, lambda _: 40_000))
    assert values(few)["--max-num-seqs"] == "16"


def test_without_a_known_memory_vllm_decides_and_it_is_said() -> None:
    made = planned(profiles.THROUGHPUT, CPU, room=None)
    assert "--max-num-seqs" not in values(made)
    assert made.left[0].startswith("--max-num-seqs is vLLM's own")
    assert values(planned(profiles.TEXT_ONLY, GPU, room=None))["--max-model-len"] == "32768"


def test_text_only_gives_the_memory_to_longer_contexts() -> None:
    made = planned(profiles.TEXT_ONLY, GPU)
    assert "--limit-mm-per-prompt" not in values(made)
    assert "--language-model-only" in values(made)
    # 12,677 blocks for four of them: the config's 262,144 positions are the limit.
    assert values(made)["--max-model-len"] == "262144"
    tight = planned(profiles.TEXT_ONLY, GPU, room=Room(256, lambda _: 4.0, lambda _: 50_000))
    assert values(tight)["--max-model-len"] == str(50_000 // 1024 * 1024)
    scarce = planned(profiles.TEXT_ONLY, GPU, room=Room(256, lambda _: 0.5, lambda _: 9_000))
    assert values(scarce)["--max-model-len"] == "32768"
    assert "--language-model-only" not in values(planned(profiles.TEXT_ONLY, OLD_CPU, PLAIN))


@pytest.mark.parametrize("profile", [profiles.THROUGHPUT, profiles.LATENCY, profiles.TEXT_ONLY])
@pytest.mark.parametrize("stack", STACKS)
def test_the_parsers_follow_what_the_template_does(profile: str, stack: str) -> None:
    default = "--default-chat-template-kwargs"
    thinks = values(planned(profile, stack, QWEN))
    assert thinks["--reasoning-parser"] == "qwen3"
    assert default not in thinks
    does_not = values(planned(profile, stack, SMALL))
    assert (does_not["--reasoning-parser"], json.loads(does_not[default])) == ("qwen3", {"enable_thinking": False})  # fmt: skip
    assert does_not["--tool-call-parser"] == "qwen3_coder"
    for odd in ("no switch", "neither", ""):
        made = planned(profile, stack, replace(QWEN, thinking=odd))
        assert "--reasoning-parser" not in values(made)
        assert any(line.startswith("--reasoning-parser is left out") for line in made.left)
    other = planned(profile, stack, PLAIN)
    assert not {"--reasoning-parser", "--tool-call-parser"} & set(values(other))
    assert any("none is on record for model_type llama" in line for line in other.left)


@pytest.mark.parametrize("profile", [profiles.BASELINE, profiles.FIRST_LIGHT, profiles.RL_ROLLOUT])
def test_no_parser_stands_between_a_trainer_and_the_text(profile: str) -> None:
    for stack in STACKS:
        assert not {"--reasoning-parser", "--tool-call-parser"} & set(values(planned(profile, stack)))


def test_rollouts_sample_as_the_trainer_says_and_open_what_has_no_key() -> None:
    made = planned(profiles.RL_ROLLOUT, GPU)
    assert values(made)["--generation-config"] == "vllm"
    assert {"--enable-sleep-mode", "--enable-prefix-caching"} <= set(values(made))
    (dev,) = [one for one in made.variables if one.name == "VLLM_SERVER_DEV_MODE"]
    assert "loopback only" in dev.why
    here = planned(profiles.RL_ROLLOUT, CPU)
    assert "--enable-sleep-mode" not in values(here)
    assert any(line.startswith("--enable-sleep-mode is left out") for line in here.left)


def test_speculative_tokens_only_where_the_block_is() -> None:
    assert json.loads(values(planned(profiles.LATENCY, GPU))["--speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 1}  # fmt: skip
    without = planned(profiles.LATENCY, GPU, replace(QWEN, mtp=False))
    assert "--speculative-config" not in values(without)
    assert any("P19" in line for line in without.left)
    assert "--speculative-config" not in values(planned(profiles.LATENCY, CPU))


@pytest.mark.parametrize("stack", [name for name in STACKS if pins.stack(name).device == "cuda"])
@pytest.mark.parametrize("profile", profiles.WHAT)
def test_a_gpu_keeps_the_quicker_first_start(profile: str, stack: str) -> None:
    assert values(planned(profile, stack))["--gdn-prefill-backend"] == "triton"


def test_first_light_compiles_nothing_and_is_short() -> None:
    made = values(planned(profiles.FIRST_LIGHT, GPU))
    assert (made["--enforce-eager"], made["--max-model-len"]) == ("", "4096")
    assert values(planned(profiles.FIRST_LIGHT, GPU, replace(QWEN, positions=512)))["--max-model-len"] == "512"  # fmt: skip


def test_a_profile_that_is_none_is_refused() -> None:
    with pytest.raises(BadParameter) as caught:
        planned("fast", CPU)
    assert "rl-rollout" in caught.value.expected


def test_a_flag_keeps_its_place_when_its_value_changes() -> None:
    before = [one.flag for one in launch.flags(pins.stack(CPU))]
    after = [one.flag for one in planned(profiles.LATENCY, CPU).flags]
    assert after[: len(before)] == before
    assert Flag("--max-num-seqs", "4", "each more at once slows every token of the others") in planned(profiles.LATENCY, CPU).flags  # fmt: skip
