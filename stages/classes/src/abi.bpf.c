// SPDX-License-Identifier: GPL-2.0
/* Never loaded: libbpf-cargo makes Rust types of what stands here, so that uapi.h is the only place where they are declared. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* The types that uapi.h takes from it are those of vmlinux.h. */
#define _LINUX_TYPES_H
#include "../uapi.h"

struct tarn_classes_ports ports;
struct tarn_classes_target target;
struct tarn_classes_figures figures;
struct tarn_classes_client client;

SEC("tc")
int never(struct __sk_buff *ctx)
{
	return ports.first + target.target + figures.waiting + client.length;
}

char LICENSE[] SEC("license") = "GPL";
