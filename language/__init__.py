"""Language models of checkpoints: text in, text or embeddings out.

model = lamina.language.load("qwen2.5-0.5b-instruct/")
for piece in model.generate(model.prompt([{"role": "user", "content": "Hello"}]), max_tokens=50):
    print(piece, end="", flush=True)
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.language")

from .attention_cache import AttentionCache
from .generating import Generation
from .model_folders import load
from .text_encoder import Encoder
from .text_model import LanguageModel
from .untrusted import CheckpointError

__all__ = ["AttentionCache", "CheckpointError", "Encoder", "Generation", "LanguageModel", "load"]
