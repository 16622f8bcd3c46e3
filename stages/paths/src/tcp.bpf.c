// SPDX-License-Identifier: GPL-2.0-only
/*
 * The round trips of this host's own TCP connections, by the uplink that they go by.
 *
 * TCP measures round trips anyway, and calls a program of a control group (cgroup) once for each, if the socket asks for that. So
 * a packet costs nothing but a test of a flag, and a round trip one call. The program is attached to the root of the groups,
 * beside those of others, and asks for every socket that begins a connection while it is there.
 *
 * What it does not see: connections that were there before, and those that this host forwards, whose round trips only their ends
 * know. A round trip is the peer's, too: how far away it is, and how long it waits before it acknowledges what it need not answer
 * (RFC 9293, 3.8.6.3: at most half a second; Linux: 40 ms). So round trips by two uplinks tell little about which is better.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "slots.h"
#include "tcp.h"

char LICENSE[] SEC("license") = "GPL";

/* The cookie of the agent's network namespace. */
const volatile __u64 namespace = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	/* The agent sets it to as many as there are uplinks, and one: slot 0 is nobody's. */
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct path_round_trips);
} round_trips SEC(".maps");

/*
 * The device by which the socket sends now: that of the route that it has cached. When the kernel's routes change, the socket looks
 * for its own anew before it sends again; so of a connection that moves, one round trip, which had begun by the old uplink, counts
 * by the new one. A socket that is bound to a device has its route there.
 *
 * The kernel reads these pointers for the program and takes a null one for zeros, so that without a route the index is 0, and
 * slot 0 is nobody's.
 */
static __always_inline struct net_device *find_device(struct tcp_sock *socket)
{
	return ((struct sock *)socket)->sk_dst_cache->dev;
}

/*
 * Adds a round trip to its bucket. Each CPU has its own, so that CPUs do not wait for one another; but a program may be
 * interrupted by another of the same CPU (TCP works on what came for a socket in use later, outside of softirq), so that it
 * takes atomic additions for none to be lost.
 *
 * No overflow: what is added is below 2^ROUND_TRIP_BITS, and both sums may wrap (shared.h).
 */
static __always_inline void count(struct net_device *device, __u32 sample_us)
{
	__u32 slot = find_slot(device);
	struct path_round_trips *path;
	__u32 bucket;

	if (!slot || slot >= SLOTS || !is_slot_of(slot, device))
		return;
	path = bpf_map_lookup_elem(&round_trips, &slot);
	if (!path)
		return;
	if (sample_us > ROUND_TRIP_MOST)
		sample_us = ROUND_TRIP_MOST;
	bucket = find_bucket(sample_us);
	/* It always is, which the verifier does not see. */
	if (bucket >= BUCKETS)
		return;
	__sync_fetch_and_add(&path->buckets[bucket], 1);
	__sync_fetch_and_add(&path->sum_us, sample_us);
}

/*
 * A connection begins: asks for its round trips, unless it is another namespace's or stays on this host. What others ask for
 * stays. The flag outlives this program and is no harm then: TCP finds nobody to call. Returns the first round trip; 0 if none.
 */
static __always_inline __u32 begin(struct bpf_sock_ops *event, struct net_device *device)
{
	if (bpf_get_netns_cookie(event) != namespace || device->ifindex == LOOPBACK_IFINDEX)
		return 0;
	bpf_sock_ops_cb_flags_set(event, event->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
	/* Where others connect to this host, a listener that defers accepting would have it wait for their request. */
	if (event->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		return 0;
	/* The handshake, which peers answer at once. TCP begins its average with it, and keeps eight times that. */
	return event->srtt_us >> 3;
}

/*
 * How long a round trip took that has ended. From 6.10 on the kernel tells. Before, only its average was to be had, which is not
 * of this round trip, and the one of the packet that was delivered last (RACK, RFC 8985, 6.2), which is; it needs a peer that
 * acknowledges selectively, as nearly all do. That packet may have been sent twice, if it took no less than the least known.
 */
static __always_inline __u32 last_round_trip(struct bpf_sock_ops *event, struct tcp_sock *socket)
{
	__u32 sample_us = event->args[0];

	if (!sample_us && bpf_core_field_exists(socket->rack.rtt_us))
		sample_us = socket->rack.rtt_us;
	return sample_us;
}

SEC("sockops")
int follow_round_trips(struct bpf_sock_ops *event)
{
	__u32 op = event->op, sample_us;
	struct net_device *device;
	struct tcp_sock *socket;
	struct bpf_sock *sk;

	if (op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_RTT_CB)
		return PROCEED;
	sk = event->sk;
	socket = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!socket)
		return PROCEED;
	device = find_device(socket);
	sample_us = op == BPF_SOCK_OPS_RTT_CB ? last_round_trip(event, socket) : begin(event, device);
	if (sample_us)
		count(device, sample_us);
	return PROCEED;
}
