"""A camera at rtsp://127.0.0.1:PORT/test, by GStreamer; prints its port.

    /usr/bin/python3 tests/surroundings/camera.py [PORT]

The system's Python has GStreamer's bindings, if their packages are installed (CONTRIBUTING.md).
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

PICTURES = "videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240"
H264 = "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=15 ! rtph264pay name=pay0"

Gst.init(None)
for needed in ("videotestsrc", "x264enc", "rtph264pay"):
    if not Gst.ElementFactory.find(needed):
        sys.exit(f"GStreamer lacks {needed}")
server = GstRtspServer.RTSPServer(address="127.0.0.1", service=(sys.argv[1:] or ["0"])[0])
factory = GstRtspServer.RTSPMediaFactory(shared=True)
factory.set_launch(f"( {PICTURES} ! {H264} )")
server.get_mount_points().add_factory("/test", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
