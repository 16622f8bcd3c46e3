//! The module's source.

use tarn_lab::builder::Source;

/// `tarn_poll`.
pub const MODULE: Source = Source {
    module: "tarn_poll",
    files: &[
        ("uapi.h", include_bytes!("../../uapi.h")),
        ("Kbuild", include_bytes!("../../kmod/Kbuild")),
        ("main.c", include_bytes!("../../kmod/main.c")),
        ("netlink.c", include_bytes!("../../kmod/netlink.c")),
        ("netlink.h", include_bytes!("../../kmod/netlink.h")),
        ("published.c", include_bytes!("../../kmod/published.c")),
        ("published.h", include_bytes!("../../kmod/published.h")),
        ("weight.c", include_bytes!("../../kmod/weight.c")),
        ("weight.h", include_bytes!("../../kmod/weight.h")),
    ],
};
