// SPDX-License-Identifier: GPL-2.0-only
/*
 * How busy each uplink is, and how unevenly: counted where the driver has taken a packet.
 *
 * The tracepoint net_dev_xmit stands behind ndo_start_xmit and tells what that returned, in every kernel since 2.6. It is called
 * for every packet of every device; only packets of an uplink go on (slots.h).
 *
 * A jiffy is the unit of time, as published: reading it takes two instructions, and most packets of a busy uplink find that none
 * has passed, and only add their length.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "load.h"
#include "slots.h"

char LICENSE[] SEC("license") = "GPL";

/* K of the averages, 0..ONE; the agent may change it at any time. */
__u32 gain = 512;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct path_load);
} loads SEC(".maps");

SEC("tp_btf/net_dev_xmit")
int BPF_PROG(count_sent, struct sk_buff *packet, int result, struct net_device *device, unsigned int length)
{
	__u32 slot = find_slot(device);
	struct path_load *path;
	__u64 now, elapsed;

	if (!slot || slot >= SLOTS || result != NETDEV_TX_OK)
		return 0;
	if (!is_slot_of(slot, device))
		return 0;
	path = bpf_map_lookup_elem(&loads, &slot);
	if (!path)
		return 0;
	now = bpf_jiffies64();
	elapsed = now - path->tick;
	if (elapsed) {
		/* The first packet of all has no time before it. */
		if (path->tick)
			update_loads(path, elapsed, gain < ONE ? gain : ONE);
		path->tick = now;
		path->bytes = 0;
	}
	path->bytes += length;
	return 0;
}

/* Run by the agent, which has no other way to know the time in jiffies. */
SEC("syscall")
int read_jiffies(struct path_clock *clock)
{
	clock->jiffies = bpf_jiffies64();
	return 0;
}
