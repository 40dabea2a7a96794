"""Event files of TensorBoard taken apart by their formats' definitions: records with their checksums, and the few fields of a protocol buffer
that scalars need. What TensorBoard shows of a folder is what TensorBoard's own rules make of these."""
import struct


def crc32c(data):
    """Bit by bit, from the polynomial."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked_crc(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """Each record's bytes. Fails where a checksum is wrong; a torn last one is left out, as TensorBoard does."""
    raw, at = path.read_bytes(), 0
    while at + 12 <= len(raw):
        length, length_crc = struct.unpack_from("<QI", raw, at)
        assert length_crc == masked_crc(raw[at : at + 8]), f"{path.name}: the checksum of a length at {at}"
        data = raw[at + 12 : at + 12 + length]
        if at + 16 + length > len(raw):
            return
        (data_crc,) = struct.unpack_from("<I", raw, at + 12 + length)
        assert data_crc == masked_crc(data), f"{path.name}: the checksum of a record at {at}"
        yield data
        at += 16 + length


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value): whole numbers, bytes, or a float by its width."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        yield key >> 3, value


def events(path):
    """{"time", "step", "version", "starts", "scalars"} of each."""
    for record in records(path):
        event = {"time": 0.0, "step": 0, "version": None, "starts": False, "scalars": {}}
        for number, value in fields(record):
            if number == 1:
                event["time"] = value
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value.decode()
            elif number == 5:
                for _, one in fields(value):
                    members = dict(fields(one))
                    event["scalars"][members[1].decode()] = members[2]
            elif number == 7:
                event["starts"] = dict(fields(value)) == {1: 1}
        yield event


def shown(folder):
    """tag -> [(step, value)], as TensorBoard shows the folder: files in the order of their names; a start forgets what there is of its step and
    later ones."""
    series = {}
    for path in sorted(folder.iterdir()):
        for number, event in enumerate(events(path)):
            assert (event["version"] == "brain.Event:2") == (number == 0), "the version stands first, and only there"
            if event["starts"]:
                series = {tag: [point for point in points if point[0] < event["step"]] for tag, points in series.items()}
            for tag, value in event["scalars"].items():
                series.setdefault(tag, []).append((event["step"], value))
    return series
