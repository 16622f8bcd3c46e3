// SPDX-License-Identifier: GPL-2.0
/* Never loaded: libbpf-cargo makes Rust types of what stands here, so that uapi.h is the only place where they are declared. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The types that uapi.h takes from it are those of vmlinux.h. */
#define _LINUX_TYPES_H
#include "../uapi.h"

struct tarn_poll_napi napi;

SEC("tc")
int never(struct __sk_buff *ctx)
{
	return napi.napi;
}

char LICENSE[] SEC("license") = "GPL";
