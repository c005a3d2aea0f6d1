"""Run by the target interpreter: fetch a repository from the hub, resuming what is there. Prints one JSON object.

``--repo OWNER/NAME --out DIR``. Endpoint and token come from HF_ENDPOINT and HF_TOKEN, read by huggingface_hub itself.
"""

import argparse
import json


def main() -> None:
    """Fetch, or say why not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repo", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    try:
        from huggingface_hub import HfApi, snapshot_download

        revision = HfApi().model_info(args.repo).sha
        snapshot_download(args.repo, revision=revision, local_dir=args.out)
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps({"repo": args.repo, "revision": revision}))


if __name__ == "__main__":
    main()
