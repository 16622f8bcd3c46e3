/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets as programs of a control group see them, and the bucket of a round trip. Of the kernel's own structures, only what is
 * needed: where it lies is found out when the program is loaded (CO-RE).
 */
#ifndef TARN_PATHS_TCP_H
#define TARN_PATHS_TCP_H

#include "device.h"
#include "shared.h"

/* include/uapi/linux/bpf.h: what a program is called for, and what a socket can ask for. */
#define BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB 4
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5
#define BPF_SOCK_OPS_RTT_CB 12
#define BPF_SOCK_OPS_RTT_CB_FLAG (1 << 3)

/* include/net/flow.h: the index of every namespace's loopback device. */
#define LOOPBACK_IFINDEX 1

/* What every such program has to return: with anything else, the kernel ignores what others of the group answer. */
#define PROCEED 1

#define ROUND_TRIP_MOST ((1U << ROUND_TRIP_BITS) - 1)

struct bpf_sock;

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	struct bpf_sock *sk;
} __attribute__((preserve_access_index));

struct dst_entry {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct sock {
	struct dst_entry *sk_dst_cache;
} __attribute__((preserve_access_index));

struct tcp_rack {
	__u32 rtt_us;
} __attribute__((preserve_access_index));

/* It begins with a struct sock. */
struct tcp_sock {
	struct tcp_rack rack;
} __attribute__((preserve_access_index));

/* Takes a step of a binary search for the highest bit: whether it is one of the upper half, `bits` of them. */
static __always_inline __u32 halve(__u32 *value, __u32 bits)
{
	if (*value >> bits == 0)
		return 0;
	*value >>= bits;
	return bits;
}

/* The number of the highest bit that is set, of 24; BPF has no instruction for it. */
static __always_inline __u32 highest_bit(__u32 value)
{
	__u32 bit = halve(&value, 16);

	bit += halve(&value, 8);
	bit += halve(&value, 4);
	bit += halve(&value, 2);
	return bit + halve(&value, 1);
}

/*
 * The bucket of a round trip of at most ROUND_TRIP_MOST us: by its highest bit and the FINE_BITS next to it.
 *
 * No overflow: the bit is FINE_BITS to ROUND_TRIP_BITS - 1, and what is left of the value FINE to 2 * FINE - 1.
 */
static __always_inline __u32 find_bucket(__u32 sample_us)
{
	__u32 shift;

	if (sample_us < FINE)
		return 0;
	shift = highest_bit(sample_us) - FINE_BITS;
	return shift * FINE + (sample_us >> shift) - FINE;
}

#endif
