"""The models of others that zoo.py exports: of torchvision, timm and transformers, the smallest of each family and the smallest input that it takes; and some in plain PyTorch."""
import functools

import torch
from torch import nn

CLASSES = 10
WORDS = 99
LENGTH = 12


def images(side, channels=3):
    return lambda n: (torch.randn(n, channels, side, side),)


def tokens(n):
    return {"input_ids": torch.randint(3, WORDS, (n, LENGTH)), "attention_mask": torch.ones(n, LENGTH, dtype=torch.long)}


def of_torchvision(name, side, **options):
    def make():
        from torchvision import models
        return models.get_model(name, weights=None, num_classes=CLASSES, **options)
    return make, images(side), {}


def of_timm(name, side, **options):
    def make():
        import timm
        return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
    return make, images(side), {}


def of_transformers(config, model, data=tokens, dynamic=True, **options):
    def make():
        import transformers
        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        if hasattr(made.config, "use_cache"):
            made.config.use_cache = False
        return made
    names = data(2)
    return make, data, {name: {1: "length"} for name in names} if dynamic and isinstance(names, dict) else {}


# What most configurations call their sizes.
BERT = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64, "num_labels": CLASSES}
LLAMA = {**BERT, "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 0}


def text_and_target(n):
    return {**tokens(n), "decoder_input_ids": torch.randint(3, WORDS, (n, 7))}


def clip_inputs(n):
    return {**tokens(n), "pixel_values": torch.randn(n, 3, 32, 32)}


def clip():
    import transformers
    text = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32, "eos_token_id": 2}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32, "patch_size": 8}

    class Similarities(nn.Module):
        """Of each text with its image; CLIP's own matrix of a batch with itself mixes samples."""

        def __init__(self):
            super().__init__()
            self.clip = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24))

        def forward(self, input_ids, attention_mask, pixel_values):
            words = self.clip.get_text_features(input_ids=input_ids, attention_mask=attention_mask)
            pictures = self.clip.get_image_features(pixel_values=pixel_values)
            words, pictures = (getattr(features, "pooler_output", features) for features in (words, pictures))
            return self.clip.logit_scale.exp() * nn.functional.cosine_similarity(words, pictures)
    return Similarities()


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(WORDS, 12), kind(12, 16, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(WORDS, 16), nn.Linear(16, CLASSES)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.out(self.encoder(self.embed(x), src_key_padding_mask=x == 0))


def double_convolution(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True), nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList(double_convolution(before, after) for before, after in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for narrow, wide in zip(widths[-2::-1], widths[:0:-1]))
        self.mix = nn.ModuleList(double_convolution(2 * narrow, narrow) for narrow in widths[-2::-1])
        self.out = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x):
        kept = []
        for i, stage in enumerate(self.down):
            x = stage(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, mix, skip in zip(self.up, self.mix, kept[-2::-1]):
            x = mix(torch.cat((skip, up(x)), 1))
        return self.out(x)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(8 * 64, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 8 * 64), nn.GELU(), nn.Unflatten(1, (8, 8, 8)), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Embeddings(nn.Module):
    """A node, its neighbours, and what kind each of the edges is."""

    def __init__(self):
        super().__init__()
        self.node, self.edge, self.bag = nn.Embedding(WORDS, 16), nn.Embedding(5, 16), nn.EmbeddingBag(WORDS, 16, mode="mean")
        self.mix, self.out = nn.Bilinear(16, 16, 16), nn.Linear(48, CLASSES)

    def forward(self, node, neighbours, kinds):
        messages = (self.node(neighbours) * torch.tanh(self.edge(kinds))).sum(1)
        own = self.node(node)
        return self.out(torch.cat((own, self.mix(own, messages), self.bag(neighbours)), 1))


def graph(n):
    return torch.randint(0, WORDS, (n,)), torch.randint(0, WORDS, (n, 6)), torch.randint(0, 5, (n, 6))


def text(n):
    return (torch.randint(0, WORDS, (n, LENGTH)),)


# name: what makes it, its inputs for n samples, dynamic=
MODELS = {
    "torchvision": {
        "alexnet": of_torchvision("alexnet", 63), "vgg11": of_torchvision("vgg11", 32), "vgg11_bn": of_torchvision("vgg11_bn", 32), "resnet18": of_torchvision("resnet18", 32),
        "resnet50": of_torchvision("resnet50", 32), "resnext50_32x4d": of_torchvision("resnext50_32x4d", 32), "wide_resnet50_2": of_torchvision("wide_resnet50_2", 32),
        "densenet121": of_torchvision("densenet121", 33), "squeezenet1_1": of_torchvision("squeezenet1_1", 32), "googlenet": of_torchvision("googlenet", 64, init_weights=False),
        "inception_v3": of_torchvision("inception_v3", 299, init_weights=False), "shufflenet_v2_x0_5": of_torchvision("shufflenet_v2_x0_5", 32), "mobilenet_v2": of_torchvision("mobilenet_v2", 32),
        "mobilenet_v3_small": of_torchvision("mobilenet_v3_small", 32), "mnasnet0_5": of_torchvision("mnasnet0_5", 32), "efficientnet_b0": of_torchvision("efficientnet_b0", 32),
        "efficientnet_v2_s": of_torchvision("efficientnet_v2_s", 32), "regnet_x_400mf": of_torchvision("regnet_x_400mf", 32), "regnet_y_400mf": of_torchvision("regnet_y_400mf", 32),
        "convnext_tiny": of_torchvision("convnext_tiny", 32), "vit_b_16": of_torchvision("vit_b_16", 32, image_size=32), "swin_t": of_torchvision("swin_t", 32),
        "swin_v2_t": of_torchvision("swin_v2_t", 32), "maxvit_t": of_torchvision("maxvit_t", 224),
    },
    "transformers": {
        "BERT": of_transformers("BertConfig", "BertForSequenceClassification", **BERT),
        "RoBERTa": of_transformers("RobertaConfig", "RobertaForSequenceClassification", **BERT),
        "DistilBERT": of_transformers("DistilBertConfig", "DistilBertForSequenceClassification", vocab_size=WORDS, dim=32, n_layers=2, n_heads=2, hidden_dim=48, num_labels=CLASSES),
        "ELECTRA": of_transformers("ElectraConfig", "ElectraForSequenceClassification", embedding_size=24, **BERT),
        "DeBERTa": of_transformers("DebertaV2Config", "DebertaV2ForSequenceClassification", relative_attention=True, pos_att_type=["p2c", "c2p"], **BERT),
        "GPT-2": of_transformers("GPT2Config", "GPT2LMHeadModel", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=2, n_positions=64),
        "GPT-NeoX": of_transformers("GPTNeoXConfig", "GPTNeoXForCausalLM", **BERT),
        "OPT": of_transformers("OPTConfig", "OPTForCausalLM", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32),
        "Llama": of_transformers("LlamaConfig", "LlamaForCausalLM", **LLAMA),
        "Qwen2": of_transformers("Qwen2Config", "Qwen2ForCausalLM", **LLAMA),
        "Mistral": of_transformers("MistralConfig", "MistralForCausalLM", **LLAMA),
        "Gemma": of_transformers("GemmaConfig", "GemmaForCausalLM", **LLAMA),
        "T5": of_transformers("T5Config", "T5ForConditionalGeneration", text_and_target, dynamic=False, vocab_size=WORDS, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2),
        "ViT": of_transformers("ViTConfig", "ViTForImageClassification", images(32), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8, num_labels=CLASSES),
        "Swin": of_transformers("SwinConfig", "SwinForImageClassification", images(32), image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=CLASSES),
        "Whisper's encoder": (lambda: whisper(), lambda n: {"input_features": torch.randn(n, 8, 40)}, {}),
        "CLIP": (clip, clip_inputs, {}),
    },
    "timm": {name: of_timm(name, side, **options) for name, side, options in (
        ("resnet10t", 32, {}), ("resnetv2_50", 32, {}), ("efficientnet_lite0", 32, {}), ("mobilenetv3_small_050", 32, {}), ("vit_tiny_patch16_224", 32, {"img_size": 32}),
        ("deit3_small_patch16_224", 32, {"img_size": 32}), ("swin_tiny_patch4_window7_224", 56, {"img_size": 56}), ("convnext_atto", 32, {}), ("convnextv2_atto", 32, {}), ("regnetx_002", 32, {}),
        ("levit_128s", 224, {}), ("mixer_s32_224", 64, {"img_size": 64}), ("resmlp_12_224", 32, {"img_size": 32}), ("poolformer_s12", 32, {}), ("edgenext_xx_small", 64, {}), ("mobilevit_xxs", 64, {}),
        ("ghostnet_050", 32, {}), ("hrnet_w18_small", 64, {}), ("repvgg_a0", 32, {}), ("fastvit_t8", 64, {}), ("xcit_nano_12_p16_224", 32, {}), ("pvt_v2_b0", 64, {}))},
    "PyTorch": {
        "LSTM": (functools.partial(Recurrent, nn.LSTM), text, {}), "GRU": (functools.partial(Recurrent, nn.GRU), text, {}),
        "TransformerEncoder": (Encoder, text, {}), "U-Net": (UNet, images(16), {}), "autoencoder": (Autoencoder, images(16), {}), "graph of embeddings": (Embeddings, graph, {}),
    },
}


def whisper():
    import transformers
    config = transformers.WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20)
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, input_features):
            return self.encoder(input_features).last_hidden_state
    return Encoder()


def small_maxvit():
    """maxvit_t's layers, with windows of 2 by 2 instead of 7 by 7."""
    from torchvision import models
    return models.MaxVit(input_size=(64, 64), stem_channels=64, partition_size=2, block_channels=[64, 128, 256, 512], block_layers=[2, 2, 5, 2], head_dim=32, stochastic_depth_prob=0.2, num_classes=CLASSES)


def narrow_vgg(name):
    """Its layers, with 512 instead of 4,096 units between the last three."""
    from torchvision import models
    model = getattr(models, name)(num_classes=CLASSES)
    model.classifier = nn.Sequential(nn.Linear(512 * 7 * 7, 512), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(512, CLASSES))
    return model


# In a run's modes: in bfloat16 a CPU without AVX-512 takes an hour and more for the 299 pixels that the side head of the one needs, and for the other's 224; three ranks with a
# whole vgg each, and verify's copies of its weights in float64, take 20 GB.
IN_MODES = {
    "inception_v3": of_torchvision("inception_v3", 75, init_weights=False, aux_logits=False),
    "maxvit_t": (small_maxvit, images(64), {}),
    "vgg11": (lambda: narrow_vgg("vgg11"), images(32), {}),
    "vgg11_bn": (lambda: narrow_vgg("vgg11_bn"), images(32), {}),
}
