"""Video files read back."""

from pathlib import Path

import numpy as np


def frames_of(path: Path) -> list[np.ndarray]:
    """The pictures of a video [height, width, 3]; those of a .gif that stay the same are one."""
    if path.suffix == ".gif":
        from PIL.Image import open as open_picture

        with open_picture(path) as gif:
            pictures = []
            for number in range(gif.n_frames):
                gif.seek(number)
                pictures.append(np.asarray(gif.convert("RGB")))
            return pictures
    import av

    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
