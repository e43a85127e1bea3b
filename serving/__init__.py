"""A server for exported models, ONNX models and language models: `python -m lamina serve model.lam`.

It is written with uvicorn, starlette and prometheus_client: the extra `serve`.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.serving")
