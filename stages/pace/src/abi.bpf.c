// SPDX-License-Identifier: GPL-2.0-only
/*
 * Never loaded: a global of each structure of the core that user space names, so that libbpf-cargo writes their Rust types.
 */
#include "vmlinux.h"

#include "core/pace.h"

struct pace pace;
struct pace_parameters parameters;
struct pace_socket socket;
struct pace_sample sample;
struct pace_decision decision;
