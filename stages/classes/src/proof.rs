//! What proves the stage.

use tarn_lab::Proof;
use tarn_lab::builder::Source;

mod api;
mod calm;
mod cost;
pub(crate) mod load;
mod overload;
mod published;
pub(crate) mod real;
pub(crate) mod scene;
pub(crate) mod service;

/// The proof.
pub static PROOF: Proof = Proof {
    stage: crate::STAGE,
    modules: &[MODULE],
    experiments: &[
        &published::PUBLISHED,
        &overload::OVERLOAD,
        &calm::CALM,
        &cost::COST,
        &api::API,
        &real::REAL,
    ],
    bench: None,
};

/// The module's source.
const MODULE: Source = Source {
    module: "tarn_classes",
    files: &[
        ("uapi.h", include_bytes!("../uapi.h")),
        ("Kbuild", include_bytes!("../kmod/Kbuild")),
        ("ack.c", include_bytes!("../kmod/ack.c")),
        ("ack.h", include_bytes!("../kmod/ack.h")),
        ("checksum.c", include_bytes!("../kmod/checksum.c")),
        ("checksum.h", include_bytes!("../kmod/checksum.h")),
        ("datagrams.c", include_bytes!("../kmod/datagrams.c")),
        ("datagrams.h", include_bytes!("../kmod/datagrams.h")),
        ("choice.c", include_bytes!("../kmod/choice.c")),
        ("choice.h", include_bytes!("../kmod/choice.h")),
        ("classes.h", include_bytes!("../kmod/classes.h")),
        ("clients.c", include_bytes!("../kmod/clients.c")),
        ("clients.h", include_bytes!("../kmod/clients.h")),
        ("compat.h", include_bytes!("../kmod/compat.h")),
        ("connection.c", include_bytes!("../kmod/connection.c")),
        ("connection.h", include_bytes!("../kmod/connection.h")),
        ("dispatch.c", include_bytes!("../kmod/dispatch.c")),
        ("dispatch.h", include_bytes!("../kmod/dispatch.h")),
        ("finding.c", include_bytes!("../kmod/finding.c")),
        ("finding.h", include_bytes!("../kmod/finding.h")),
        ("flows.c", include_bytes!("../kmod/flows.c")),
        ("flows.h", include_bytes!("../kmod/flows.h")),
        ("hooks.c", include_bytes!("../kmod/hooks.c")),
        ("hooks.h", include_bytes!("../kmod/hooks.h")),
        ("limit.c", include_bytes!("../kmod/limit.c")),
        ("limit.h", include_bytes!("../kmod/limit.h")),
        ("main.c", include_bytes!("../kmod/main.c")),
        ("memory.c", include_bytes!("../kmod/memory.c")),
        ("memory.h", include_bytes!("../kmod/memory.h")),
        ("netlink.c", include_bytes!("../kmod/netlink.c")),
        ("netlink.h", include_bytes!("../kmod/netlink.h")),
        ("netlink_clients.c", include_bytes!("../kmod/netlink_clients.c")),
        ("netlink_clients.h", include_bytes!("../kmod/netlink_clients.h")),
        ("plain.h", include_bytes!("../kmod/plain.h")),
        ("protocol.c", include_bytes!("../kmod/protocol.c")),
        ("protocol.h", include_bytes!("../kmod/protocol.h")),
        ("requests.c", include_bytes!("../kmod/requests.c")),
        ("requests.h", include_bytes!("../kmod/requests.h")),
        ("selftest/choice.c", include_bytes!("../kmod/selftest/choice.c")),
        ("services.c", include_bytes!("../kmod/services.c")),
        ("services.h", include_bytes!("../kmod/services.h")),
        ("session.c", include_bytes!("../kmod/session.c")),
        ("session.h", include_bytes!("../kmod/session.h")),
        ("spans.c", include_bytes!("../kmod/spans.c")),
        ("spans.h", include_bytes!("../kmod/spans.h")),
        ("suspects.c", include_bytes!("../kmod/suspects.c")),
        ("suspects.h", include_bytes!("../kmod/suspects.h")),
        ("room.c", include_bytes!("../kmod/room.c")),
        ("room.h", include_bytes!("../kmod/room.h")),
        ("times.h", include_bytes!("../kmod/times.h")),
        ("upgrades.c", include_bytes!("../kmod/upgrades.c")),
        ("upgrades.h", include_bytes!("../kmod/upgrades.h")),
    ],
};
