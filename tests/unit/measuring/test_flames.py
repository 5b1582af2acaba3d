"""Flame graphs of what perf has sampled."""

import re

from benchmark.flames.graph import WIDTH, draw, fold, lay_out

SCRIPT = """\
 17 
\tffffffff81ffd544 __ip_queue_xmit+0x284 ([kernel.kallsyms])
\tffffffff81e2cd59 __x64_sys_sendto+0x24 ([kernel.kallsyms])
\tffffffff821ed511 do_syscall_64+0x71 ([kernel.kallsyms])
\t          11ad0f __send+0x4f (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t          5f1122 [unknown] (/opt/envoy)

 23 
\t    7f498665e380 [unknown] (/tmp/perf-23.map)
\t          182b98 run+0x1 (/opt/libopenvino_intel_cpu_plugin.so)

 23 
\t          182b98 run+0x1 (/opt/libopenvino_intel_cpu_plugin.so)
\t               0 [unknown] ([unknown])

 99 
\t          182b98 idle (/bin/other)
"""
NAMES = {17: "Envoy", 23: "Network"}


def test_a_stack_names_libraries_the_system_call_and_the_last_function() -> None:
    assert fold(SCRIPT, NAMES) == {
        ("Envoy", "envoy", "c", "sendto", "__ip_queue_xmit"): 1,
        ("Network", "openvino_intel_cpu_plugin", "computing"): 1,
        ("Network", "openvino_intel_cpu_plugin", "run"): 1,
    }


def test_boxes_stand_on_what_called_them_and_are_as_wide_as_their_time() -> None:
    boxes = {box.stack: (box.left, box.count) for box in lay_out(fold(SCRIPT, NAMES))}
    assert boxes["Network",] == (0, 2) and boxes["Envoy",] == (2, 1)
    assert boxes["Network", "openvino_intel_cpu_plugin", "run"][1] == 1
    drawn = draw(fold(SCRIPT, NAMES), "<1> picture", requests=2, seconds=0.001)
    assert "&lt;1&gt; picture" in drawn and "Network 1.00 ms" in drawn
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="18"', drawn)]
    assert max(widths) == round(WIDTH * 2 / 3, 1)
