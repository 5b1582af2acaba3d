"""How much work one request may be, of each kind. The steps hold to it, because requests over gRPC
come to no other place; each costs a core about two seconds at most, before the network.

How many pictures, texts, sounds or rows a request may have at all, its model's max_batch_size says:
of frames of a video one, and of a user's function what it was bound with.
"""

# In pictures of the largest size (MAX_MEGAPIXELS), as libjpeg decodes them at a reduced size. What
# has to be decoded whole takes so many times as long.
PICTURES = 4
DECODED_WHOLE = 3

# Of all texts together. Each counts with as many tokens as the longest, to which it is padded.
CHARACTERS = 1_000_000
TOKENS = 4096

# In sounds of the longest kind. Each counts as the longest, to which it is padded.
SOUNDS = 10

# Of all arrays of pixels together.
MEGAPIXELS = 50


def too_many_tokens(texts: int, longest: int) -> str | None:
    """None if a request may have so many. A single text may be as long as its network takes."""
    if texts == 1 or texts * longest <= TOKENS:
        return None
    return (
        f"the {texts} texts of this request have up to {longest} tokens each, together "
        f"{texts * longest}, more than the limit of {TOKENS}; send fewer at once"
    )
