"""What a conversion writes of a table: tensors, tokens, images. Each writer takes a unit's rows and returns the files it has written."""
import hashlib
import io
import os
import pathlib
import warnings

from .files import replacing, write_tensors
from .refusals import ConversionError

SUFFIXES = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG\r\n\x1a\n", ".png"))
ANIMATED = ("GIF", "WEBP", "PNG", "TIFF")  # a camera's JPEG has a second, small frame
BYTES = 256  # a vocabulary
HEADER = 256  # numbers of 32 bits before tokens of 32 bits, as llm.c writes them: these two, how many tokens there are, and zeros
MAGIC, VERSION = 20240801, 7
MOST_TOKENS = (1 << 31) - 1  # of a file with a header


def numbers_of(name, array, unit, pad, filler=0):
    """A column as {name: numpy array [rows, ...]}; with its lengths where lists were filled up."""
    import numpy
    import pyarrow as pa

    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if isinstance(array, pa.ChunkedArray):  # of no chunk, or of several that cannot be one
        array = pa.concat_arrays(array.chunks)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise ConversionError(f"{unit.file}: the column {name!r} has no value in row {row} of piece {unit.number}: leave such rows out, or write a number for what is missing")
    if pa.types.is_boolean(array.type) or pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return {name: array.to_numpy(zero_copy_only=False)}
    if pa.types.is_fixed_size_list(array.type) or pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return lists_of(name, array, unit, pad, filler)
    if is_image(array.type):
        return {name: numpy.stack([pixels_of(value, name, unit) for value in same_sizes(name, array, unit)])}
    raise ConversionError(f"{unit.file}: the column {name!r} holds {array.type}, which is no number: leave it out by --columns, or make class "
                          f"indices of it by --classes {name}")  # fmt: skip


def lists_of(name, array, unit, pad, filler):
    import numpy
    import pyarrow.compute as compute

    lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False)
    inner = numbers_of(name, array.flatten(), unit, 0)[name]
    alike = len(lengths) == 0 or (lengths == lengths[0]).all()
    if not pad:
        if not alike:
            raise ConversionError(f"{unit.file}: the lists of {name!r} are {lengths.min()} to {lengths.max()} long: write --pad {lengths.max()} or more, which fills "
                                  f"them up and writes {name}_lengths, or --packed")  # fmt: skip
        return {name: inner.reshape(len(lengths), -1 if len(lengths) else 0, *inner.shape[1:])}
    if len(lengths) and lengths.max() > pad:
        raise ConversionError(f"{unit.file}: a list of {name!r} is {lengths.max()} long: write --pad {lengths.max()} or more")
    check_filler(name, filler, inner.dtype, unit)
    filled = numpy.full((len(lengths), pad, *inner.shape[1:]), filler, inner.dtype)
    filled[numpy.arange(pad)[None, :] < lengths[:, None]] = inner
    return {name: filled, f"{name}_lengths": lengths.astype("int64")}


def check_filler(name, filler, dtype, unit):
    """Raises ConversionError where a column of this type cannot hold it: it would become another number."""
    import numpy

    fractions = dtype.kind == "f"
    if fractions:
        lowest, highest = float(numpy.finfo(dtype).min), float(numpy.finfo(dtype).max)
    else:
        lowest, highest = (0, 1) if dtype.kind == "b" else (numpy.iinfo(dtype).min, numpy.iinfo(dtype).max)
    if not lowest <= filler <= highest or not (fractions or filler == int(filler)):
        raise ConversionError(f"{unit.file}: --pad-value {name}={filler}: {name!r} holds {dtype}, {'' if fractions else 'whole '}numbers from {lowest} to {highest}: write one of them")


def is_list(kind):
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


OFFSETS = "offsets"


def packed_of(names, table, unit):
    """Lists without padding, {name: numpy array [values, ...]}, and where each row's begin, as data.offsets takes it: all of a row are equally long."""
    import numpy
    import pyarrow.compute as compute

    found, first = {}, None
    for name in names:
        array = table.column(name).combine_chunks()
        lengths = compute.fill_null(compute.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        if empty := numpy.flatnonzero(lengths == 0).tolist():
            raise ConversionError(f"{unit.file}: row {empty[0]} of piece {unit.number} holds nothing in {name!r}, and data.offsets takes no sequence without values: leave such rows out")
        if first is None:
            first = (name, lengths)
        if unlike := numpy.flatnonzero(lengths != first[1]).tolist():
            raise ConversionError(f"{unit.file}: row {unlike[0]} of piece {unit.number} has {first[1][unlike[0]]} values in {first[0]!r} and {lengths[unlike[0]]} in {name!r}: what is packed "
                                  "together is equally long; leave one out by --columns")  # fmt: skip
        found[name] = numbers_of(name, array.flatten(), unit, 0)[name]
    if OFFSETS in table.column_names:
        raise ConversionError(f"{unit.file}: --packed writes {OFFSETS!r}, which is a column already: leave it out by --columns")
    return {**found, OFFSETS: numpy.concatenate(([0], numpy.cumsum(first[1], dtype="int64")))}


def is_image(kind):
    """As Hugging Face stores one: {bytes, path}."""
    import pyarrow as pa

    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or (pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)


def file_of(value, unit):
    """The bytes of an image file."""
    if isinstance(value, dict):
        value = value["bytes"] if value.get("bytes") else value.get("path")
    if isinstance(value, bytes):
        return value
    path = pathlib.Path(unit.file).parent / str(value)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConversionError(f"{unit.file}: the image {path} cannot be read: {error.strerror}") from None


def eight_bits(image):
    """[height, width] or [height, width, channels]; of grey PNGs of 16 bits the upper 8, which PIL would cut off at 255."""
    import numpy

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        return (numpy.asarray(image) >> 8).astype("uint8")
    if image.mode in ("I", "F"):
        raise ValueError("its pixels are numbers of 32 bits, of which nobody knows what is black and what is white: write such images as 8 bits")
    if image.format in ANIMATED and getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"it has {image.n_frames} frames: write each as an image of its own")
    return numpy.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))


def pixels_of(value, name, unit):
    """[channels, height, width], 8 bits, turned as its EXIF orientation says."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ConversionError("images become tensors by Pillow, which is not here: pip install pillow; or write --to images") from None
    raw = file_of(value, unit)
    try:
        image = Image.open(io.BytesIO(raw))
        ImageOps.exif_transpose(image, in_place=True)
        pixels = eight_bits(image)
    except Exception as error:  # what Pillow throws at a damaged file has many types
        raise ConversionError(f"{unit.file}: an image of {name!r} cannot be read: {error}") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def same_sizes(name, array, unit):
    values = array.to_pylist()
    shapes = {pixels_of(value, name, unit).shape for value in values}
    if len(shapes) > 1:
        sizes = len({shape[1:] for shape in shapes})
        unlike = f"of {sizes} sizes" if sizes > 1 else "grey in some rows and coloured in others"
        raise ConversionError(f"{unit.file}: the images of {name!r} are {unlike}: write --to images, which keeps them as they are")
    return values


class Tensors:
    @staticmethod
    def check(wishes):
        if wishes.pad_value and not wishes.pad:
            raise ConversionError("--pad-value says what --pad fills lists up with: write --pad N, too")
        columns = [column for column, _filler in wishes.pad_value]
        if repeated := [column for column in columns if columns.count(column) > 1]:
            raise ConversionError(f"--pad-value has two numbers for {repeated[0]!r}: write one of them")

    @staticmethod
    def plan(_wishes, classes):
        return {"names": [str(value) for value in classes.values]} if classes else {}

    @staticmethod
    def facts(_wishes):
        return {}

    @staticmethod
    def columns(wishes):
        return list(dict.fromkeys((*wishes.columns, *filter(None, [wishes.classes])))) if wishes.columns else None

    @staticmethod
    def write(table, unit, target, wishes, classes):
        import torch

        lists = [name for name in table.column_names if wishes.packed and name != wishes.classes and is_list(table.column(name).type)]
        if wishes.packed and not lists:
            raise ConversionError(f"{unit.file}: --packed is of lists, and no column of {', '.join(map(repr, table.column_names))} holds some")
        arrays = {name: torch.from_numpy(array.copy()) for name, array in packed_of(lists, table, unit).items()} if lists else {}
        fillers = dict(wishes.pad_value)
        for name in table.column_names:
            if name in lists:
                continue
            if classes and name == wishes.classes:
                made = {name: torch.tensor(classes.indices(table, unit, name, others=True))}
            else:
                made = {part: torch.from_numpy(array.copy()) for part, array in numbers_of(name, table.column(name), unit, wishes.pad, fillers.get(name, 0)).items()}
            if taken := made.keys() & arrays.keys():
                raise ConversionError(f"{unit.file}: {taken.pop()!r} would be written twice (--pad adds NAME_lengths): leave a column out by --columns, or give it another name")
            if len(made) > 1:  # filled up
                fillers.pop(name, None)
            arrays |= made
        if fillers:
            name, filler = next(iter(fillers.items()))
            raise ConversionError(f"{unit.file}: --pad-value {name}={filler}: {name!r} is no column of lists that --pad fills up: name one that is")
        path = target / f"part-{unit.number:05}.safetensors"
        try:
            write_tensors(path, arrays)
        except (TypeError, ValueError) as error:  # of a type, or a name, that the format does not have
            raise ConversionError(f"{unit.file}: {error}") from error
        return [path]

    @staticmethod
    def end(target, classes):
        pass


class Tokens:
    @staticmethod
    def check(wishes):
        vocabulary_of(wishes)

    @staticmethod
    def facts(wishes):
        vocabulary, separator = vocabulary_of(wishes)
        return {"vocabulary": vocabulary, "separator": separator, "type": type_of(vocabulary)}

    @staticmethod
    def plan(wishes, _classes):
        header = {"header": [MAGIC, VERSION]} if type_of(vocabulary_of(wishes)[0]) == "uint32" else {}
        return header if wishes.tokenizer == "bytes" else {**header, "tokenizer_digest": hashlib.blake2b(tokenizer_of(wishes.tokenizer).to_str().encode()).hexdigest()}

    @staticmethod
    def columns(wishes):
        return [wishes.text]

    @staticmethod
    def write(table, unit, target, wishes, _classes):
        import numpy

        path = target / f"part-{unit.number:05}.bin"
        vocabulary, separator = vocabulary_of(wishes)
        wide = type_of(vocabulary) == "uint32"
        with replacing(path) as partial, open(partial, "wb") as file:
            file.write(bytes(4 * HEADER if wide else 0))
            count = 0
            for tokens in Tokens.rows(table, unit, wishes, separator):
                count += len(tokens)
                if wide and count > MOST_TOKENS:
                    raise ConversionError(f"{unit.file}: piece {unit.number} has more than {MOST_TOKENS} tokens, and the header of a file of 32-bit tokens counts no more: "
                                          "split the source into smaller files, or Parquet into smaller row groups")  # fmt: skip
                file.write(numpy.asarray(tokens, dtype="<u4" if wide else "<u2").tobytes())
            if wide:
                file.seek(0)
                file.write(numpy.array([MAGIC, VERSION, count], dtype="<i4").tobytes())
        return [path]

    @staticmethod
    def rows(table, unit, wishes, separator):
        encode = encoder_of(wishes)
        for row, text in enumerate(table.column(wishes.text).to_pylist()):
            if not isinstance(text, str):
                raise ConversionError(f"{unit.file}: row {row} of piece {unit.number} has {type(text).__name__} in {wishes.text!r}, not text")
            yield encode(text) + ([] if separator is None else [separator])

    @staticmethod
    def end(target, classes):
        pass


def type_of(vocabulary):
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def tokenizer_of(name):
    try:
        import tokenizers
    except ImportError:
        raise ConversionError("a tokenizer is read by tokenizers, which is not here: pip install tokenizers; or write --tokenizer bytes") from None
    path = pathlib.Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file)) if file.is_file() else tokenizers.Tokenizer.from_pretrained(name)
    except Exception as error:  # what tokenizers throws has no type of its own
        raise ConversionError(f"--tokenizer {name}: it is no tokenizer.json, no folder with one and no name on the Hugging Face hub that can be fetched: {error}") from error
    # Such a file remembers how transformers has used it last.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encoder_of(wishes):
    if wishes.tokenizer == "bytes":
        return lambda text: list(text.encode())
    tokenizer = tokenizer_of(wishes.tokenizer)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def vocabulary_of(wishes):
    """How many tokens there are, and the one that is written after each row or None."""
    tokenizer = None if wishes.tokenizer == "bytes" else tokenizer_of(wishes.tokenizer)
    size = BYTES if tokenizer is None else 1 + max(tokenizer.get_vocab().values(), default=0)  # numbers may have gaps
    if not wishes.separator:
        return size, None
    number = int(wishes.separator) if wishes.separator.isdigit() else tokenizer and tokenizer.token_to_id(wishes.separator)
    if number is None:
        raise ConversionError(f"--separator {wishes.separator} is no token of --tokenizer {wishes.tokenizer}: write a number, as 256 after bytes")
    if number >= 1 << 32:
        raise ConversionError(f"--separator {number}: a token has 32 bits at most")
    return max(size, number + 1), number


class Images:
    @staticmethod
    def check(wishes):
        if not wishes.classes:
            raise ConversionError("--to images makes a folder for each class: write --classes COLUMN")

    @staticmethod
    def plan(_wishes, classes):
        return {"folders": folders_of(classes.values)}

    @staticmethod
    def facts(_wishes):
        return {}

    @staticmethod
    def columns(wishes):
        return [wishes.image, wishes.classes]

    @staticmethod
    def write(table, unit, target, wishes, classes):
        folders = folders_of(classes.values)
        files = []
        for row, (value, index) in enumerate(zip(table.column(wishes.image).to_pylist(), classes.indices(table, unit, wishes.classes))):
            raw = file_of(value, unit)
            suffix = next((suffix for magic, suffix in SUFFIXES if raw.startswith(magic)), ".webp" if raw[8:12] == b"WEBP" else None)
            if suffix is None:
                raise ConversionError(f"{unit.file}: row {row} of piece {unit.number} is no JPEG, PNG or WebP image")
            path = target / folders[index] / f"{unit.number:05}-{row:06}{suffix}"
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as partial:
                partial.write_bytes(raw)
            files.append(path)
        return files

    @staticmethod
    def end(target, classes):
        """A class without a row has a folder, too, or the classes after it would have other numbers."""
        for value, folder in zip(classes.values, folders_of(classes.values)):
            (target / folder).mkdir(exist_ok=True)
            if not any((target / folder).iterdir()):
                warnings.warn(f"the class {value!r} has no row, and its folder {target / folder} is empty: that will do for validation; as training data it is refused: "
                              "write --to tensors, or drop the class (removing its folder gives those after it other numbers)", stacklevel=3)  # fmt: skip


def folders_of(classes):
    """Sorted by name, as data.kind = "image_folder" numbers them, they are in the order of the classes."""
    numbers = all(isinstance(value, int) for value in classes)
    width = max((len(str(value)) for value in classes), default=0)
    folders = [f"{value:0{width}}" if numbers else str(value).replace("/", "_") for value in classes]
    if len(set(folders)) < len(folders) or any(name in ("", ".", "..") or name.startswith(".") for name in folders):
        raise ConversionError("the classes' names cannot be those of folders: give others")
    if sorted(folders, key=os.fsencode) == folders:
        return folders
    width = len(str(len(classes) - 1))
    return [f"{i:0{width}}-{value if numbers else folder}" for i, (value, folder) in enumerate(zip(classes, folders))]


WRITERS = {"tensors": Tensors, "tokens": Tokens, "images": Images}
