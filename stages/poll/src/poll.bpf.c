// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts what NAPIs do, and sheds what a storm brings before it costs an sk_buff.
 *
 *   count   at the tracepoint napi_poll, behind every poll of every NAPI, in softirqs and threads alike. One lookup for a NAPI that is
 *           not watched.
 *   shed    in XDP, on the devices that the agent watches. While nothing is shed: one load and a jump.
 *
 * Nothing is shed later than `patience` after the agent's last look: the program outlives an agent that was killed, and must not drop
 * by a share that nobody adapts. Time is told in jiffies, which cost one load.
 *
 * An overload may keep the agent from looking, for it runs when the kernel lets it. So `count` raises an alarm by itself where polls are
 * full for long and the agent has not looked meanwhile, and `shed` goes by a share for that until it has.
 * One poll that is not full is too little: what it interrupted may be the kernel, which runs on to its end first.
 *
 * A poll has to end: others run only between polls. It does once it has passed its weight of packets, 64, but not every driver counts
 * those that a program drops or redirects (vmxnet3 does not). So after MOST_IN_A_POLL packets of one poll what is to be dropped passes
 * to nobody, and nothing runs after `shed`: then the poll counts as full, and too many of them as an overload.
 *
 * All counters of `shed` are a CPU's own: a card spreads its sources over queues, and so over CPUs, each of which has its own load.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

/* Drawn when the program is loaded: nobody can tell whose counters a forged address shares. */
const volatile __u32 secret = 0;

#include "shed/bpf.h"
#define SHED_INLINE __always_inline
#include "shared.h"
#include "shed/sketch.h"
#include "shed/packet.h"

char LICENSE[] SEC("license") = "GPL";

/* IEEE 802, local experimental EtherType 1: no protocol of the kernel's. */
#define ETH_P_LOCAL_EXPERIMENT 0x88b5
/* 0.5 ms at 1 us for a packet that is dropped. */
#define MOST_IN_A_POLL 512
/* Full polls in a row for so long, and of so many packets, are no burst. */
#define ALARM_NS 12000000
#define ALARM_PACKETS 1024

/* include/linux/netdevice.h */
struct napi_struct {
	unsigned int napi_id;
	int weight;
	struct task_struct *thread;
} __attribute__((preserve_access_index));

/* For how long the agent may not look, in jiffies. */
const volatile __u32 patience = 1;

/* How many CPUs poll on and on, about: each goes by its own polls, and this saves the others from looking. */
__u32 alarm = 0;

/* Which look of the agent's was last seen, and when (jiffies). Every CPU writes the same. */
struct {
	__u64 at;
	__u32 window;
} seen = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct poll_control);
} control SEC(".maps");

/* By the low bits of the device's index. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, struct poll_share);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_NAPIS);
	__type(key, __u32);	/* the NAPI's identifier */
	__type(value, struct poll_napi);
} napis SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_DEVICES);
	__type(key, __u32);	/* the device's index */
	__type(value, struct poll_device);
} devices SEC(".maps");

/*
 * Threads that the agent lets go first, and their priority. No program reads it: it is for those that outlive the agent, who could not ask
 * netlink. That waits for the kernel's lock of devices (RTNL), whose holder may be an ordinary thread that gets no CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_NAPIS);
	__type(key, __s32);
	__type(value, __s32);
} first SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SKETCH_SIZE);
	__type(key, __u32);
	__type(value, struct shed_cell);
} sketch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HEAVY_SIZE);
	__type(key, __u32);
	__type(value, struct shed_heavy);
} heavy SEC(".maps");

/* How a CPU polls. */
struct poll_state {
	__u32 packets;	/* of the poll that goes on */
	__u32 tick;	/* when it began, in jiffies */
	__u32 full;	/* packets of full polls in a row, of one NAPI; counted up to what an alarm needs */
	__u32 napi;	/* whose they are */
	__u32 random;	/* the last number drawn */
	__u32 source;	/* what may pass now, as in struct poll_share */
	__u32 port;
	__u32 weight;	/* of the packet that is judged; through memory as well, see set_limits() */
	__u64 since;	/* when the full polls began (CLOCK_MONOTONIC, ns) */
	__u32 alarmed;	/* whether this CPU has raised the alarm */
	__u32 window;	/* the agent's last look at the last full poll */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct poll_state);
} state SEC(".maps");

/* By the low bits of the device's index. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, struct poll_counts);
} counts SEC(".maps");

/* The programs of other stages that run after `shed`, by the low bits of the device's index: crates/kernel/src/xdp_next.rs. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SHARES);
	__type(key, __u32);
	__type(value, __u32);
} xdp_next SEC(".maps");

/* Whether the kernel has such a map: `handovers` is not made otherwise. */
const volatile bool has_sockets = true;

/* Sockets that have a NAPI go over to its thread (handover.rs), by the receive queue of one device. They take no packet. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MOST_NAPIS);
	__type(key, __u32);
	__type(value, __u32);
} handovers SEC(".maps");

/* About how many packets of whom were dropped; those that were dropped from last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct shed_sender);
	__type(value, __u64);
} senders SEC(".maps");

/* The agent's last look. */
static __always_inline __u32 window_now(void)
{
	__u32 zero = 0;
	struct poll_control *agent = bpf_map_lookup_elem(&control, &zero);

	return agent ? agent->window : 0;
}

static __always_inline void end_alarm(struct poll_state *here)
{
	if (here->alarmed)
		__sync_fetch_and_sub(&alarm, 1);
	here->alarmed = 0;
	here->full = 0;
}

/* After a poll that took all it might. */
static __always_inline void was_full(struct poll_state *here, __u32 napi, __u32 packets)
{
	__u32 window = window_now();
	__u64 now;

	here->napi = napi;
	if (here->window != window)
		end_alarm(here);
	here->window = window;
	if (here->alarmed)
		return;
	now = bpf_ktime_get_ns();
	if (!here->full)
		here->since = now;
	if (here->full < ALARM_PACKETS)
		here->full += packets;
	if (here->full >= ALARM_PACKETS && now - here->since >= ALARM_NS) {
		here->alarmed = 1;
		__sync_fetch_and_add(&alarm, 1);
	}
}

/* After a poll that did not. An agent that looks no more ends no alarm; patience does. */
static __always_inline void was_not_full(struct poll_state *here)
{
	if (!here->alarmed || here->window != window_now() || bpf_jiffies64() - seen.at > patience)
		end_alarm(here);
}

/* Whether the NAPI's own thread runs, rather than a softirq in whatever context. */
static __always_inline bool is_its_thread(struct napi_struct *napi)
{
	return (__u64)BPF_CORE_READ(napi, thread) == bpf_get_current_task();
}

SEC("tp_btf/napi_poll")
int BPF_PROG(count, struct napi_struct *napi, int work, int budget)
{
	__u32 id = napi->napi_id, zero = 0;
	struct poll_napi *counted = bpf_map_lookup_elem(&napis, &id);
	struct poll_state *here = bpf_map_lookup_elem(&state, &zero);

	if (here) {
		here->packets = 0;
		here->tick = bpf_jiffies64();
	}
	/* Netpoll and sockets that poll by themselves have a budget of their own. */
	if (!counted || budget != napi->weight)
		return 0;
	/* A NAPI is polled by one CPU at a time: nobody else adds to these. */
	counted->polls++;
	counted->full += work >= budget;
	counted->work += work;
	counted->weight = budget;
	counted->threaded += is_its_thread(napi);
	if (!here)
		return 0;
	if (work >= budget) {
		was_full(here, id, budget);
	} else if (here->napi == id || here->alarmed) {
		was_not_full(here);
	}
	return 0;
}

/* What is known of a key, and what one packet of it means. */
struct judgement {
	__u32 chance;	/* of being dropped */
	__u32 weight;	/* packets that this one stands for; 0: it is not counted */
};

/* The rate of a key, with this packet: the lower of its two cells. */
static __always_inline __u32 rate_of(__u32 reason, __u32 key, __u32 window, __u32 weight, __u32 share)
{
	__u32 rate = ~0U;

#pragma unroll
	for (__u32 row = 0; row < SKETCH_ROWS; row++) {
		__u32 place = shed_place(reason, row, key), found;
		struct shed_cell *cell = bpf_map_lookup_elem(&sketch, &place);

		if (!cell)
			continue;
		found = shed_count(cell, window, weight, share);
		rate = found < rate ? found : rate;
	}
	return rate == ~0U ? 0 : rate;
}

/* One packet of a heavy key stands for so many; the others for none. */
static __always_inline __u32 heavy_weight(__u32 random)
{
	return random & (HEAVY_WEIGHT - 1) ? 0 : HEAVY_WEIGHT;
}

static __always_inline struct judgement judge(__u32 reason, __u32 key, __u32 window, __u32 share, __u32 random, __u32 weight)
{
	struct judgement judgement = { .weight = weight };
	__u32 place = shed_heavy_place(reason, key);
	struct shed_heavy *known = bpf_map_lookup_elem(&heavy, &place);

	if (!known)
		return judgement;
	if (shed_is_heavy(known, key, window)) {
		judgement.chance = known->chance;
		judgement.weight = heavy_weight(random);
		if (!judgement.weight)
			return judgement;
	}
	judgement.chance = shed_chance(rate_of(reason, key, window, judgement.weight, share), share);
	if (judgement.chance >= CHANCE_HEAVY) {
		known->key = key;
		known->window = window;
		known->chance = judgement.chance;
	} else if (known->key == key) {
		known->chance = 0;
	}
	return judgement;
}

/* Whether a connection is there that a TCP packet belongs to; the stack would look it up as well. */
static __noinline int is_connected(struct xdp_md *context, struct shed_packet *packet)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;
	__u32 length;
	int connected;

	if (!packet)
		return 0;
	if (packet->sender.family == AF_INET) {
		tuple.ipv4.saddr = packet->sender.address[0];
		tuple.ipv4.daddr = packet->destination[0];
		tuple.ipv4.sport = packet->source_port;
		tuple.ipv4.dport = packet->sender.port;
		length = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, packet->sender.address, 16);
		__builtin_memcpy(tuple.ipv6.daddr, packet->destination, 16);
		tuple.ipv6.sport = packet->source_port;
		tuple.ipv6.dport = packet->sender.port;
		length = sizeof(tuple.ipv6);
	}
	socket = bpf_skc_lookup_tcp(context, &tuple, length, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return 0;
	/* One that has only asked for a connection has proved nothing: its address may be forged. */
	connected = socket->state != BPF_TCP_LISTEN && socket->state != BPF_TCP_NEW_SYN_RECV;
	bpf_sk_release(socket);
	return connected;
}

static __always_inline struct poll_counts *counts_of(__u32 device)
{
	__u32 place = device & (SHARES - 1);

	return bpf_map_lookup_elem(&counts, &place);
}

/* Drops a packet beyond a share, unless it belongs to a connection: TCP slows down by itself. */
static __noinline int drop(struct xdp_md *context, struct shed_packet *packet, __u32 reason, __u32 weight)
{
	struct poll_counts *counted = counts_of(context->ingress_ifindex);
	__u64 *of_sender, first = weight;

	if (!packet || !counted || reason >= SHED_REASONS)
		return XDP_PASS;
	if (packet->is_flow && is_connected(context, packet)) {
		counted->spared++;
		return XDP_PASS;
	}
	counted->shed[reason]++;
	if (!weight)
		return XDP_DROP;
	of_sender = bpf_map_lookup_elem(&senders, &packet->sender);
	if (of_sender)
		__sync_fetch_and_add(of_sender, weight);
	else
		bpf_map_update_elem(&senders, &packet->sender, &first, BPF_ANY);
	return XDP_DROP;
}

/* Another number: who has survived the first one would pass any lower chance. */
static __always_inline __u32 draw_again(__u32 random)
{
	return shed_mix(random) >> 16;
}

static __always_inline bool is_known(__u32 reason, __u32 key, __u32 window)
{
	__u32 place = shed_heavy_place(reason, key);
	struct shed_heavy *known = bpf_map_lookup_elem(&heavy, &place);

	return known && shed_is_heavy(known, key, window);
}

static __noinline int shed_one(struct xdp_md *context, volatile struct poll_state *here, __u32 window, __u32 random)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 device = context->ingress_ifindex, draw = random >> 16, key;
	struct shed_packet packet = {};
	struct judgement judgement;

	if (!here || !read_frame(&packet, data, end))
		return XDP_PASS;
	key = port_key(packet.sender.port, packet.sender.protocol, packet.is_flow, device);
	/* Most of what a heavy port gets does not come here: what does is counted for the others, by its source as well. */
	here->weight = is_known(SHED_PORT, key, window) ? heavy_weight(random) : 1;
	judgement = judge(SHED_SOURCE, source_key(&packet, device), window, here->source, random, here->weight);
	if (draw < judgement.chance)
		return drop(context, &packet, SHED_SOURCE, judgement.weight);
	if (packet.is_neighbour)
		return XDP_PASS;
	judgement = judge(SHED_PORT, key, window, here->port, random, 1);
	if (draw_again(random) < judgement.chance)
		return drop(context, &packet, SHED_PORT, judgement.weight);
	return XDP_PASS;
}

/*
 * A number that senders cannot foretell well enough to gain by it: numbers of Knuth's linear congruential generator, mixed. The
 * kernel's own costs more than dropping a packet.
 */
static __always_inline __u32 draw_number(struct poll_state *here)
{
	here->random = here->random * 1664525U + 1013904223U;
	return shed_mix(here->random);
}

/* Whether a key is known to be heavy, and this number within its chance. */
static __always_inline bool is_drawn(__u32 reason, __u32 key, __u32 window, __u32 draw)
{
	__u32 place = shed_heavy_place(reason, key);
	struct shed_heavy *known = bpf_map_lookup_elem(&heavy, &place);

	return known && shed_is_heavy(known, key, window) && draw < known->chance;
}

/* Whether a packet without IP options has ports, and belongs to no connection. */
static __always_inline bool has_port_at_once(const struct iphdr *ip, void *end)
{
	struct tcphdr *tcp = (void *)(ip + 1);

	if (ip->ihl != 5 || ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET) || (void *)(tcp + 1) > end)
		return false;
	return ip->protocol == IPPROTO_UDP || (ip->protocol == IPPROTO_TCP && tcp->syn);
}

/*
 * Drops a packet whose source or port is known to be heavy, unless it is one that is counted, or may belong to a connection: the
 * shortest way, which most of a flood goes. No tags, no extension headers.
 */
static __always_inline bool drop_at_once(struct xdp_md *context, __u32 window, __u32 random)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	__u32 device = context->ingress_ifindex, reason = SHED_SOURCE, key;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct transport *transport = (void *)(ip + 1);
	struct poll_counts *counted;
	bool has_port;

	if ((void *)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP) || !(random & (HEAVY_WEIGHT - 1)))
		return false;
	has_port = has_port_at_once(ip, end);
	if (!has_port && ip->protocol == IPPROTO_TCP)
		return false;
	if (!is_drawn(SHED_SOURCE, ipv4_key(ip->saddr, device), window, random >> 16)) {
		if (!has_port)
			return false;
		key = port_key(transport->second, ip->protocol, 0, device);
		if (!is_drawn(SHED_PORT, key, window, draw_again(random)))
			return false;
		reason = SHED_PORT;
	}
	counted = counts_of(device);
	if (counted)
		counted->shed[reason]++;
	return true;
}

/* How long ago the agent has looked, in jiffies. */
static __always_inline __u64 looked_ago(__u32 window)
{
	__u64 now = bpf_jiffies64();

	if (seen.window != window) {
		seen.window = window;
		seen.at = now;
	}
	return now - seen.at;
}

/*
 * What may pass while polls are full for so long that the agent may not get the CPU. Packets a window, as in struct poll_share; the port's
 * is little, so that a flood whose sources are forged ends soon as well.
 */
#define ALARM_SOURCE 128
#define ALARM_PORT 512

/*
 * What may pass now: what the agent says; at most what an alarm lets pass. Through memory: of a value from there Linux 6.1's verifier
 * knows nothing, and so follows what comes next once instead of once for each way here.
 */
static __always_inline void set_limits(volatile struct poll_state *here, const struct poll_share *share, __u32 window)
{
	__u32 source = share->share, port = share->port;

	if (share->alarm && here->alarmed && here->window == window) {
		source = source && source < ALARM_SOURCE ? source : ALARM_SOURCE;
		port = port && port < ALARM_PORT ? port : ALARM_PORT;
	}
	here->source = source;
	here->port = port;
}

static __always_inline int shed_or_pass(struct xdp_md *context, const struct poll_control *agent, volatile struct poll_state *here)
{
	__u32 place = context->ingress_ifindex & (SHARES - 1), random;
	struct poll_share *share = bpf_map_lookup_elem(&shares, &place);
	__u64 ago;

	if (!share || share->device != context->ingress_ifindex)
		return XDP_PASS;
	/* All CPUs share it: none writes it twice. */
	if (!share->ran)
		share->ran = 1;
	ago = looked_ago(agent->window);
	set_limits(here, share, agent->window);
	if (!here->source || ago > patience)
		return XDP_PASS;
	random = draw_number((struct poll_state *)here);
	if (drop_at_once(context, agent->window, random))
		return XDP_DROP;
	return shed_one(context, here, agent->window, random);
}

/*
 * Has the driver count a packet that is to be dropped: the kernel drops it as soon as it has an sk_buff, and counts it as one without a
 * handler. That is a third of what a packet costs that somebody gets.
 */
static __always_inline int pass_to_nobody(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;

	if ((void *)(ethernet + 1) > end)
		return XDP_DROP;
	/* A bridge drops what is addressed so (IEEE 802.1Q, reserved addresses), and would forward it otherwise. */
	__builtin_memcpy(ethernet->h_dest, "\x01\x80\xc2\x00\x00\x01", 6);
	ethernet->h_proto = bpf_htons(ETH_P_LOCAL_EXPERIMENT);
	return XDP_PASS;
}

/* `count` ends with the agent, and `shed` outlives both: then the clock has to tell that a poll is over. None lasts for two ticks. */
static __always_inline bool begins_anew(struct poll_state *here)
{
	__u32 tick = bpf_jiffies64();

	if (tick - here->tick < 2)
		return false;
	here->tick = tick;
	here->packets = 1;
	return true;
}

SEC("xdp")
int shed(struct xdp_md *context)
{
	__u32 zero = 0;
	struct poll_control *agent = bpf_map_lookup_elem(&control, &zero);
	struct poll_state *here;
	bool is_too_long;

	/* All that a packet costs in calm times. */
	if (!agent || !(agent->sheds | agent->next | alarm))
		return XDP_PASS;
	here = bpf_map_lookup_elem(&state, &zero);
	if (!here)
		return XDP_PASS;
	is_too_long = ++here->packets > MOST_IN_A_POLL && !begins_anew(here);
	if ((agent->sheds | alarm) && shed_or_pass(context, agent, here) == XDP_DROP) {
		if (is_too_long)
			return pass_to_nobody(context);
		if (has_sockets && agent->redirects)
			return bpf_redirect_map(&handovers, context->rx_queue_index, XDP_DROP);
		return XDP_DROP;
	}
	if (agent->next && !is_too_long)
		bpf_tail_call(context, &xdp_next, context->ingress_ifindex & (SHARES - 1));
	return XDP_PASS;
}
