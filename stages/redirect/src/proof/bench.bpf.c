// SPDX-License-Identifier: GPL-2.0
/*
 * `tarn lab bench redirect`: the redirect programs' own functions over packets that are made anew for every run.
 *
 * BPF_PROG_RUN runs a program many times over one packet, which the first run would leave rewritten, and whose rule and
 * flow would be in the nearest cache from the second run on. So each run here first writes a packet: its rule, or its
 * flow, is drawn at random out of all. The draw_* programs do only that; what the others take longer is the cost of
 * the functions under test. Checksums are not right: they are adjusted by difference, which costs the same.
 *
 * The maps are those of a loaded instance of redirect.bpf.c, its flow tables excepted.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "../shared.h"
#include "../bpf/packet.h"
#include "../bpf/maps.h"
#include "../bpf/checksum.h"
#include "../bpf/flows.h"
#include "../bpf/decide.h"
#include "../bpf/rewrite.h"
#include "../bpf/icmp.h"
#include "../bpf/fragment.h"
#include "../bpf/tc.h"
#include "../bpf/xdp.h"

char LICENSE[] SEC("license") = "GPL";

#define TC_ACT_REDIRECT 7

/* Rule i is for UDP to address FIRST_ADDRESS + i % ADDRESSES, port FIRST_PORT + i / ADDRESSES. RFC 2544's network. */
#define FIRST_ADDRESS 0xc6120000	/* 198.18.0.0/15 */
#define ADDRESSES_SHIFT 17
#define FIRST_PORT 10000

/* Not in any rule: TEST-NET-3, discard. */
#define OTHER_ADDRESS 0xcb007100
#define OTHER_PORT 9

#define CLIENTS 0xac100000	/* 172.16.0.0/12 */
#define CLIENTS_MASK 0xfffff
#define CLIENT_PORT 20000

/* What the packets are. */
enum traffic {
	KNOWN_FLOW = 0,		/* one of `flows` flows, which lie evenly over the rules */
	FIRST_PACKET = 1,	/* of a flow of its own, to any rule */
	OTHER_PORTS = 2,	/* to and from ports that no rule has */
	OTHER_ADDRESSES = 3,	/* to a rule's port at any of 65536 addresses that no rule has */
};

struct bench {
	__u64 random;
	__u64 serial;		/* FIRST_PACKET: flows so far */
	__u64 redirected;	/* packets that the programs have redirected */
	__u32 rules;
	__u32 flows;
	__u32 traffic;		/* enum traffic */
	__u32 in_order;		/* flows one after the other instead of drawn, to open all of them */
};

struct bench bench SEC(".data.bench") = {};

/* Where the headers are, in a frame without tags and options. */
struct frame {
	struct iphdr *ip;
	struct udphdr *udp;
};

/* A number below `below`: the upper bits of Knuth's MMIX generator. */
static __always_inline __u32 draw(__u32 below)
{
	bench.random = bench.random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (bench.random >> 32) * below >> 32;
}

static __always_inline void address_to_rule(struct frame *frame, __u32 rule)
{
	frame->ip->daddr = bpf_htonl(FIRST_ADDRESS + (rule & ((1 << ADDRESSES_SHIFT) - 1)));
	frame->udp->dest = bpf_htons(FIRST_PORT + (rule >> ADDRESSES_SHIFT));
}

static __always_inline void write_known_flow(struct frame *frame)
{
	__u32 flow = bench.in_order ? bench.serial++ % bench.flows : draw(bench.flows);

	address_to_rule(frame, (__u64)flow * bench.rules / bench.flows);
	frame->ip->saddr = bpf_htonl(CLIENTS | (flow & CLIENTS_MASK));
	frame->udp->source = bpf_htons(CLIENT_PORT + (flow >> 20));
}

static __always_inline void write_first_packet(struct frame *frame)
{
	__u64 flow = bench.serial++;

	address_to_rule(frame, draw(bench.rules));
	frame->ip->saddr = bpf_htonl(CLIENTS | (flow & CLIENTS_MASK));
	frame->udp->source = bpf_htons(CLIENT_PORT + (flow >> 20 & 0x7fff));
}

static __always_inline void write_other(struct frame *frame, bool is_port_in_use)
{
	frame->ip->daddr = bpf_htonl(OTHER_ADDRESS + draw(0x10000));
	frame->ip->saddr = bpf_htonl(CLIENTS);
	frame->udp->source = bpf_htons(OTHER_PORT);
	frame->udp->dest = is_port_in_use ? bpf_htons(FIRST_PORT) : bpf_htons(OTHER_PORT);
}

/* False when there is no room in the packet. */
static __always_inline bool write_packet(void *data, void *end, struct frame *frame)
{
	frame->ip = data + ETHERNET_LENGTH;
	frame->udp = data + ETHERNET_LENGTH + sizeof(struct iphdr);
	if ((void *)(frame->udp + 1) > end)
		return false;
	frame->ip->ttl = 64;
	frame->udp->check = 0x1234;
	if (bench.traffic == KNOWN_FLOW)
		write_known_flow(frame);
	else if (bench.traffic == FIRST_PACKET)
		write_first_packet(frame);
	else
		write_other(frame, bench.traffic == OTHER_ADDRESSES);
	return true;
}

SEC("xdp")
int empty_xdp(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int draw_xdp(struct xdp_md *ctx)
{
	struct frame frame;

	write_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &frame);
	return XDP_PASS;
}

SEC("xdp")
int bench_xdp(struct xdp_md *ctx)
{
	struct frame frame;
	int verdict;

	if (!write_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &frame))
		return XDP_ABORTED;
	verdict = xdp_ingress(ctx);
	bench.redirected += verdict == XDP_REDIRECT;
	return verdict;
}

SEC("tc")
int empty_tc(struct __sk_buff *ctx)
{
	return PASS;
}

SEC("tc")
int draw_tc(struct __sk_buff *ctx)
{
	struct frame frame;

	write_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &frame);
	return PASS;
}

SEC("tc")
int bench_tc(struct __sk_buff *ctx)
{
	struct frame frame;
	int verdict;

	if (!write_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &frame))
		return TC_ACT_SHOT;
	verdict = tc_ingress(ctx, ETHERNET_LENGTH);
	bench.redirected += verdict == TC_ACT_REDIRECT;
	return verdict;
}

/* Of the first packet's way only this: which rule, and where does it lead? */
SEC("tc")
int lookup_tc(struct __sk_buff *ctx)
{
	struct scratch *scratch = get_scratch();
	struct flow_key4 key = { .protocol = IPPROTO_UDP };
	struct target *target;
	struct frame frame;

	if (!scratch || !write_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end, &frame))
		return TC_ACT_SHOT;
	key.source = frame.ip->saddr;
	key.destination = frame.ip->daddr;
	key.ports = join_ports(frame.udp->source, frame.udp->dest);
	fill_tuple4(&scratch->packet, &key, frame.ip);
	target = find_target(scratch);
	if (!target)
		return PASS;
	scratch->flow.address = target->address;
	scratch->flow.port = target->port;
	bench.redirected += 1;
	return PASS;
}
