"""Tiny models of real families, with random weights: programs that run one pass or one training step of each."""

import dataclasses
from collections.abc import Callable

# Called with every model that is made; a test puts hooks on it here.
on_model = lambda model: model  # noqa: E731


def llama(layers=2):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_cache=False,
        )
    )


def gpt2(reentrant=None):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=16, use_cache=False))
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    return model


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=True,
            use_cache=False,
        )
    )


def qwen2_moe():
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    return Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_experts=4,
            num_experts_per_tok=2,
            use_cache=False,
        )
    )


def bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    )


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=16,
            patch_size=8,
            num_labels=5,
        )
    )


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=128,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    return WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=128,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=16,
            max_target_positions=16,
            num_mel_bins=8,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            use_cache=False,
        )
    )


def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(
        MambaConfig(vocab_size=128, hidden_size=32, state_size=8, num_hidden_layers=2, use_cache=False)
    )


def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(
        ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
            num_labels=5,
        )
    )


def tokens(length=6):
    import torch

    return torch.randint(3, 128, (2, length), generator=torch.Generator().manual_seed(7))


def text():
    return {"input_ids": tokens(), "labels": tokens()}


def masked_text():
    import torch

    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    return {**text(), "attention_mask": mask}


def image():
    import torch

    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(7))
    return {"pixel_values": pixels, "labels": torch.tensor([1, 4])}


def sound():
    import torch

    features = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(7))
    return {"input_features": features, "labels": tokens()}


@dataclasses.dataclass(frozen=True)
class Family:
    build: Callable
    inputs: Callable


FAMILIES = {
    "llama": Family(llama, text),
    "gpt2": Family(gpt2, text),
    "mixtral": Family(mixtral, text),
    "qwen2_moe": Family(qwen2_moe, text),
    "bert": Family(bert, masked_text),
    "vit": Family(vit, image),
    "t5": Family(t5, masked_text),
    "whisper": Family(whisper, sound),
    "mamba": Family(mamba, text),
    "resnet": Family(resnet, image),
}
# For tests of other things than the family.
SMALL = {"one_layer": Family(lambda: llama(layers=1), text)}
LEVELS = ("L0", "L1", "mix")


def every():
    import nets

    return FAMILIES | SMALL | nets.NETS


def import_models():
    """Does the programs' imports: transformers loads each family when its class is first named."""
    for family in FAMILIES.values():
        family.build()


def program(make, name, training):
    def call(debugger, case):
        import torch

        make.seed_everything()
        family = every()[name]
        model = on_model(family.build()).to(getattr(torch, case.dtype)).train(training)
        inputs = family.inputs()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) if training else None
        make.seed_everything()  # dropout
        debugger.start(model=model)
        if training:
            optimizer.zero_grad()
            model(**inputs).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        else:
            with torch.no_grad():
                model(**inputs)
        debugger.stop()
        debugger.step()

    return call


def programs(make):
    return {
        f"{name}_{'train' if training else 'forward'}": program(make, name, training)
        for name in every()
        for training in (False, True)
    }


# Families whose modules hand tensors through, or change them in place: trained with "backward": "exact" too.
EXACT = ("mixtral", "qwen2_moe", "t5", "whisper", "resnet")


def cases(make):
    made = {f"{program}_{level}": make.Case(program, level) for program in programs(make) for level in LEVELS}
    made["arrays_tensor_L0"] = make.Case("arrays_forward", "L0", task="tensor")
    for family in EXACT:
        for level in ("L0", "mix"):
            made[f"{family}_exact_{level}"] = make.Case(f"{family}_train", level, top={"backward": "exact"})
    return made
