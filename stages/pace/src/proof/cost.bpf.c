// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long a function of a congestion control takes, and how often it is called. On one CPU: its calls do not overlap.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

__u64 began_ns;
__u64 spent_ns;
__u64 calls;

SEC("fentry")
int begins(void *context)
{
	began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit")
int ends(void *context)
{
	/* The other program may not watch yet. */
	if (began_ns) {
		spent_ns += bpf_ktime_get_ns() - began_ns;
		calls++;
		began_ns = 0;
	}
	return 0;
}
