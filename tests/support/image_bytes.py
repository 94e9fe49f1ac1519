"""The first bytes of images of any size: enough for whoever looks at kind and size, and decodes nothing."""

import struct
import zlib


def png(width: int = 4, height: int = 3) -> bytes:
    """A whole one, of grey."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * min(width, 64)) * min(height, 64))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def gif(width: int = 4, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def jpeg(width: int = 4, height: int = 3) -> bytes:
    """With a thumbnail's size in a comment and a fill byte before the frame."""
    comment = b"\xff\xfe" + struct.pack(">H", 12) + b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x01"
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + comment + frame + b"\xff\xd9"


def webp(kind: bytes, width: int = 4, height: int = 3) -> bytes:
    sizes = {
        b"VP8 ": b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width & 0x3FFF, height & 0x3FFF),
        b"VP8L": b"\x2f" + struct.pack("<I", (width - 1 & 0x3FFF) | (height - 1 & 0x3FFF) << 14),
        b"VP8X": bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }
    body = b"WEBP" + kind + struct.pack("<I", len(sizes[kind])) + sizes[kind]
    return b"RIFF" + struct.pack("<I", len(body)) + body
