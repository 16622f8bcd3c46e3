// SPDX-License-Identifier: GPL-2.0-only
/*
 * The published rule, as the blog post of December 2025 has it, for the experiment paths-jitter: nothing for a user.
 *
 * The post changes the kernel's ECMP: each look-up of a multipath route takes the live nexthop of the greatest weight. A router
 * looks a route up for each packet that it forwards, so that a program where packets come in, which chooses for each of them, does
 * the same on a stock kernel. Its measure is updated behind the driver, as in the post: each packet that was taken, when at least a
 * jiffy has passed since the last one that counted, in whole bytes, with the bytes of that packet alone.
 *
 *	weight = (ema_load + ema_time_delta) * cost
 *
 * The lab's guest has one CPU, so nothing here is per CPU; the post's route cache entries are not either.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../device.h"

char LICENSE[] SEC("license") = "GPL";

#define TC_ACT_OK 0
#define ETH_P_IP 0x0800
#define AF_INET 2
#define PATHS_MOST 8

/* The post's defaults: lowpower_ema_k_factor, lowpower_power_cost_weight. */
#define K 512
#define COST 100

/* How many there are, and whether the greatest weight wins, as published, or the least, as it was meant. */
const volatile __u32 count = 0;
const volatile bool greatest_wins = true;

struct published_path paths[PATHS_MOST];
/* Packets that took another path than the one before. */
__u64 changes;
static __u32 last;

static __always_inline __u32 ema(__u32 old, __u32 new)
{
	return (K * (__u64)new + (ONE - K) * (__u64)old) / ONE;
}

static __always_inline void update(struct published_path *path, __u32 length)
{
	__u64 now = bpf_jiffies64();
	__u64 elapsed = now - path->tick;
	__u32 rate;

	if (!elapsed)
		return;
	rate = length / elapsed;
	path->load = ema(path->load, rate);
	path->unevenness = ema(path->unevenness, rate > path->load ? rate - path->load : path->load - rate);
	path->tick = now;
}

SEC("tp_btf/net_dev_xmit")
int BPF_PROG(at_sent, struct sk_buff *packet, int result, struct net_device *device, unsigned int length)
{
	if (result != NETDEV_TX_OK)
		return 0;
	for (__u32 number = 0; number < PATHS_MOST && number < count; number++)
		if (is_device(device, &paths[number].device))
			update(&paths[number], length);
	return 0;
}

static __always_inline __u32 choose(void)
{
	__s64 best = -1;
	__u32 chosen = 0;

	for (__u32 number = 0; number < PATHS_MOST && number < count; number++) {
		__s64 weight = ((__s64)paths[number].load + paths[number].unevenness) * COST;

		if (best < 0 || (greatest_wins ? weight > best : weight < best)) {
			best = weight;
			chosen = number;
		}
	}
	return chosen;
}

SEC("tc")
int at_received(struct __sk_buff *packet)
{
	struct bpf_redir_neigh next = { .nh_family = AF_INET };
	__u32 chosen = choose() & (PATHS_MOST - 1);

	if (packet->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	if (chosen != last)
		changes++;
	last = chosen;
	next.ipv4_nh = paths[chosen].gateway;
	return bpf_redirect_neigh(paths[chosen].device.index, &next, sizeof(next), 0);
}
