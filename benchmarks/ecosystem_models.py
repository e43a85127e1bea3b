"""Small models of the transformers and timm libraries, as both PyTorch and Lamina build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch


class Case(NamedTuple):
    """A model of transformers: its class, its configuration, what it is given, and whether it generates."""

    cls: str
    kind: str
    config: dict[str, Any]
    inputs: Callable[[], dict[str, Any]]
    generates: bool = False


def tokens(rows: int = 2, length: int = 7) -> Any:
    """Numbers of words.  Shapes: [rows, length]."""
    return torch.tensor(np.random.default_rng(0).integers(3, 60, (rows, length)))


def noise(*shape: int) -> Any:
    """Normal numbers, always the same."""
    return torch.tensor(np.random.default_rng(1).standard_normal(shape).astype("float32"))


def text() -> dict[str, Any]:
    return {"input_ids": tokens()}


def text_of_8() -> dict[str, Any]:
    return {"input_ids": tokens(2, 8)}


def pair() -> dict[str, Any]:
    return {"input_ids": tokens(), "decoder_input_ids": tokens(2, 5)}


def image(size: int = 32) -> Callable[[], dict[str, Any]]:
    return lambda: {"pixel_values": noise(2, 3, size, size)}


def image_and_text() -> dict[str, Any]:
    return {"input_ids": tokens(), "pixel_values": noise(2, 3, 32, 32)}


def sound() -> dict[str, Any]:
    return {"input_values": noise(2, 800)}


SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
OF_GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
BOTH = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
PATCHES = {
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
WAVES = {
    "vocab_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4],
    "conv_kernel": [8, 8],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}

TRANSFORMERS: dict[str, Case] = {
    # decoders
    "llama": Case("LlamaForCausalLM", "llama", GROUPED, text, True),
    "gpt2": Case("GPT2LMHeadModel", "gpt2", OF_GPT2, text, True),
    "gpt_neo": Case(
        "GPTNeoForCausalLM",
        "gpt_neo",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 64,
        },
        text,
        True,
    ),
    "gpt_neox": Case("GPTNeoXForCausalLM", "gpt_neox", SMALL, text, True),
    "gptj": Case("GPTJForCausalLM", "gptj", {**OF_GPT2, "rotary_dim": 4}, text, True),
    "opt": Case("OPTForCausalLM", "opt", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32}, text, True),
    "bloom": Case(
        "BloomForCausalLM",
        "bloom",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
        },
        text,
        True,
    ),
    "mistral": Case("MistralForCausalLM", "mistral", {**GROUPED, "sliding_window": 4}, text, True),
    "qwen2": Case("Qwen2ForCausalLM", "qwen2", GROUPED, text, True),
    "qwen3": Case("Qwen3ForCausalLM", "qwen3", {**GROUPED, "head_dim": 8}, text, True),
    "gemma": Case("GemmaForCausalLM", "gemma", {**GROUPED, "head_dim": 8}, text, True),
    "gemma2": Case("Gemma2ForCausalLM", "gemma2", {**GROUPED, "head_dim": 8}, text, True),
    "gemma3": Case("Gemma3ForCausalLM", "gemma3_text", {**GROUPED, "head_dim": 8}, text, True),
    "phi": Case("PhiForCausalLM", "phi", SMALL, text, True),
    "phi3": Case("Phi3ForCausalLM", "phi3", {**GROUPED, "pad_token_id": 0}, text, True),
    "falcon": Case("FalconForCausalLM", "falcon", SMALL, text, True),
    "stablelm": Case("StableLmForCausalLM", "stablelm", GROUPED, text, True),
    "olmo2": Case("Olmo2ForCausalLM", "olmo2", GROUPED, text, True),
    "mpt": Case(
        "MptForCausalLM",
        "mpt",
        {
            "vocab_size": 64,
            "d_model": 32,
            "n_layers": 2,
            "n_heads": 4,
            "max_seq_len": 64,
        },
        text,
        True,
    ),
    "codegen": Case("CodeGenForCausalLM", "codegen", {**OF_GPT2, "rotary_dim": 4}, text, True),
    "starcoder2": Case("Starcoder2ForCausalLM", "starcoder2", GROUPED, text, True),
    "cohere": Case("CohereForCausalLM", "cohere", GROUPED, text, True),
    # mixtures of experts
    "mixtral": Case("MixtralForCausalLM", "mixtral", {**GROUPED, "num_local_experts": 4}, text, True),
    "qwen2_moe": Case(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        {
            **GROUPED,
            "num_experts": 4,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
        text,
        True,
    ),
    # state spaces
    "mamba": Case(
        "MambaForCausalLM",
        "mamba",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
        },
        text,
        True,
    ),
    "mamba2": Case(
        "Mamba2ForCausalLM",
        "mamba2",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 4,
        },
        text,
        True,
    ),
    "rwkv": Case(
        "RwkvForCausalLM",
        "rwkv",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "context_length": 64,
            "attention_hidden_size": 32,
        },
        text,
    ),
    # encoders
    "bert": Case("BertForMaskedLM", "bert", SMALL, text),
    "bert for classes": Case("BertForSequenceClassification", "bert", {**SMALL, "num_labels": 3}, text),
    "roberta": Case("RobertaForMaskedLM", "roberta", SMALL, text),
    "distilbert": Case(
        "DistilBertForMaskedLM",
        "distilbert",
        {
            "vocab_size": 64,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 64,
        },
        text,
    ),
    "albert": Case("AlbertForMaskedLM", "albert", {**SMALL, "embedding_size": 16}, text),
    "electra": Case("ElectraForPreTraining", "electra", {**SMALL, "embedding_size": 16}, text),
    "deberta": Case("DebertaForMaskedLM", "deberta", SMALL, text),
    "deberta_v2": Case("DebertaV2ForMaskedLM", "deberta-v2", SMALL, text),
    "xlnet": Case(
        "XLNetLMHeadModel",
        "xlnet",
        {
            "vocab_size": 64,
            "d_model": 32,
            "n_layer": 2,
            "n_head": 4,
            "d_inner": 48,
        },
        text,
    ),
    "mpnet": Case("MPNetModel", "mpnet", SMALL, text),
    "modernbert": Case(
        "ModernBertForMaskedLM",
        "modernbert",
        {
            **SMALL,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "cls_token_id": 2,
            "sep_token_id": 1,
        },
        text,
    ),
    "longformer": Case("LongformerModel", "longformer", {**SMALL, "attention_window": 4}, text_of_8),
    "funnel": Case(
        "FunnelModel",
        "funnel",
        {
            "vocab_size": 64,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "block_sizes": [1, 1],
        },
        text_of_8,
    ),
    "fnet": Case("FNetModel", "fnet", SMALL, text),
    "nystromformer": Case(
        "NystromformerModel",
        "nystromformer",
        {
            **SMALL,
            "segment_means_seq_len": 8,
            "num_landmarks": 4,
        },
        text_of_8,
    ),
    # both
    "t5": Case(
        "T5ForConditionalGeneration",
        "t5",
        {
            "vocab_size": 64,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        pair,
        True,
    ),
    "bart": Case("BartForConditionalGeneration", "bart", BOTH, text, True),
    "marian": Case(
        "MarianMTModel",
        "marian",
        {
            **BOTH,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
        pair,
        True,
    ),
    "pegasus": Case("PegasusForConditionalGeneration", "pegasus", BOTH, pair, True),
    "prophetnet": Case(
        "ProphetNetForConditionalGeneration",
        "prophetnet",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
            "decoder_start_token_id": 0,
        },
        pair,
    ),
    # vision
    "vit": Case("ViTForImageClassification", "vit", PATCHES, image()),
    "deit": Case("DeiTForImageClassification", "deit", PATCHES, image()),
    "beit": Case("BeitForImageClassification", "beit", PATCHES, image()),
    "dinov2": Case("Dinov2Model", "dinov2", PATCHES, image()),
    "swin": Case(
        "SwinForImageClassification",
        "swin",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        image(),
    ),
    "convnext": Case(
        "ConvNextForImageClassification",
        "convnext",
        {
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "num_stages": 2,
        },
        image(),
    ),
    "resnet": Case(
        "ResNetForImageClassification",
        "resnet",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
        },
        image(),
    ),
    "regnet": Case(
        "RegNetModel",
        "regnet",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "groups_width": 4,
        },
        image(),
    ),
    "segformer": Case(
        "SegformerForSemanticSegmentation",
        "segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "num_attention_heads": [1, 2],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        image(),
    ),
    "mobilevit": Case(
        "MobileViTModel",
        "mobilevit",
        {
            "image_size": 64,
            "hidden_sizes": [16, 20, 24],
            "neck_hidden_sizes": [4, 8, 8, 12, 12, 16, 32],
            "num_attention_heads": 2,
        },
        image(64),
    ),
    "poolformer": Case(
        "PoolFormerModel",
        "poolformer",
        {
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
        },
        image(64),
    ),
    "yolos": Case(
        "YolosForObjectDetection",
        "yolos",
        {
            **PATCHES,
            "image_size": [32, 32],
            "num_detection_tokens": 5,
        },
        image(),
    ),
    "clip": Case(
        "CLIPModel",
        "clip",
        {
            "text_config": SMALL,
            "vision_config": PATCHES,
            "projection_dim": 16,
        },
        image_and_text,
    ),
    "siglip": Case(
        "SiglipModel",
        "siglip",
        {
            "text_config": SMALL,
            "vision_config": PATCHES,
        },
        image_and_text,
    ),
    # sound, series, control
    "wav2vec2": Case("Wav2Vec2ForCTC", "wav2vec2", WAVES, sound),
    "hubert": Case("HubertModel", "hubert", WAVES, sound),
    "whisper": Case(
        "WhisperForConditionalGeneration",
        "whisper",
        {
            **BOTH,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda: {"input_features": noise(2, 8, 40), "decoder_input_ids": tokens(2, 5)},
    ),
    "audio spectrogram": Case(
        "ASTForAudioClassification",
        "audio-spectrogram-transformer",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "patch_size": 4,
            "max_length": 24,
            "num_mel_bins": 16,
        },
        lambda: {"input_values": noise(2, 24, 16)},
    ),
    "speecht5": Case(
        "SpeechT5ForSpeechToText",
        "speecht5",
        {
            **BOTH,
            **{k: v for k, v in WAVES.items() if k.startswith(("conv", "num_conv"))},
            "hidden_size": 32,
        },
        lambda: {"input_values": noise(2, 800), "decoder_input_ids": tokens(2, 5)},
    ),
    "patchtst": Case(
        "PatchTSTForPrediction",
        "patchtst",
        {
            "num_input_channels": 2,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "prediction_length": 4,
        },
        lambda: {"past_values": noise(2, 32, 2)},
    ),
    "decision transformer": Case(
        "DecisionTransformerModel",
        "decision_transformer",
        {
            "state_dim": 3,
            "act_dim": 2,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "max_ep_len": 20,
        },
        lambda: {
            "states": noise(2, 4, 3),
            "actions": noise(2, 4, 2),
            "rewards": noise(2, 4, 1),
            "returns_to_go": noise(2, 4, 1),
            "timesteps": torch.arange(4).repeat(2, 1),
            "attention_mask": torch.ones(2, 4),
        },
    ),
}

TIMM = """
bat_resnext26ts beit_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_lite_tiny coatnet_nano_rw_224
convformer_s18 convit_tiny convmixer_768_32 convnext_atto convnextv2_atto crossvit_tiny_240 cs3darknet_s
cspdarknet53 cspresnet50 darknet17 davit_tiny deit3_small_patch16_224 deit_tiny_patch16_224 densenet121 dla34
dm_nfnet_f0 dpn48b eca_resnet33ts ecaresnet26t edgenext_xx_small efficientformer_l1 efficientformerv2_s0
efficientnet_b0 efficientnet_lite0 efficientnetv2_rw_t efficientvit_b0 efficientvit_m0 ese_vovnet19b_slim
eva02_tiny_patch14_224 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcresnet33ts gcvit_xxtiny gernet_s
ghostnet_050 ghostnetv2_100 gmixer_12_224 gmlp_ti16_224 haloregnetz_b hardcorenas_a hgnet_tiny hgnetv2_b0
hiera_tiny_224 hrnet_w18_small inception_next_tiny inception_resnet_v2 inception_v3 inception_v4
lambda_resnet26t lcnet_050 legacy_seresnet18 levit_128s maxvit_rmlp_pico_rw_256 mixer_s32_224 mixnet_s
mnasnet_050 mobilenet_edgetpu_100 mobilenetv1_100 mobilenetv2_050 mobilenetv3_small_050
mobilenetv4_conv_small mobileone_s0 mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny nf_regnet_b0
nf_resnet26 nfnet_l0 pit_ti_224 poolformer_s12 pvt_v2_b0 regnetx_002 regnety_002 regnetz_005 repghostnet_050
repvgg_a0 repvit_m0_9 res2net50_14w_8s resmlp_12_224 resnest14d resnet18 resnet26t resnetblur18
resnetrs50 resnetv2_50 resnext26ts rexnet_100 rexnetr_150 sebotnet33ts_256 selecsls42b
semnasnet_050 sequencer2d_s seresnet18 seresnext26d_32x4d skresnet18 spnasnet_100 starnet_s1 swin_s3_tiny_224
swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 test_byobnet test_convnext test_efficientnet test_resnet
test_vit tf_efficientnet_lite0 tf_mixnet_s tiny_vit_5m_224 tinynet_e tnt_s_legacy_patch16_224 tresnet_m
twins_svt_small vgg11 visformer_tiny vit_base_patch32_clip_224 vit_small_resnet26d_224 vit_tiny_patch16_224
volo_d1_224 vovnet39a wide_resnet50_2 xception41 xcit_nano_12_p16_224
""".split()
