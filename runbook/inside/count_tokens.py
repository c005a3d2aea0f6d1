"""Run by the target interpreter: how many tokens a checkpoint's tokenizer makes of some texts.

``--path DIR --texts FILE``: the checkpoint's folder, and a JSON list of texts. Prints one JSON object.
"""

import argparse
import json
from pathlib import Path


def main() -> None:
    """Print the counts in the order of the texts, or why the tokenizer does not load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    parser.add_argument("--texts", required=True)
    asked = parser.parse_args()
    try:
        # The library itself: transformers takes seconds to import and adds nothing to a count.
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(Path(asked.path) / "tokenizer.json"))
        texts = json.loads(Path(asked.texts).read_text(encoding="utf-8"))
        counts = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
        facts = {"tokenizers": tokenizers.__version__, "counts": counts}
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
