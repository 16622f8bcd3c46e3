/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whose packet it is, and what it is addressed to. Nothing here writes to the packet; nothing reads past its end. What cannot be read
 * (not IP, cut off) belongs to nobody and passes: ARP, LLDP, spanning tree.
 */
#ifndef TARN_POLL_PACKET_H
#define TARN_POLL_PACKET_H

#define AF_INET 2
#define AF_INET6 10
#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define ETH_P_IPV6 0x86dd
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define IP_FRAGMENT_OFFSET 0x1fff
#define MOST_TAGS 2
/* Router solicitation to redirect (RFC 4861): without these no neighbour is found. */
#define ND_FIRST 133
#define ND_LAST 137

struct shed_packet {
	struct shed_sender sender;
	__u32 destination[4];	/* network byte order */
	__u16 source_port;	/* network byte order */
	__u8 is_flow;		/* TCP without SYN: it may belong to a connection */
	__u8 is_neighbour;	/* neighbour discovery: no port is judged */
};

struct tag {
	__be16 identifier;
	__be16 protocol;
};

/* Type and code, or the ports: what all transport headers begin with. */
struct transport {
	__be16 first;
	__be16 second;
};

static SHED_INLINE void read_transport(struct shed_packet *packet, void *at, void *end)
{
	struct transport *transport = at;
	struct tcphdr *tcp = at;

	if ((void *)(transport + 1) > end)
		return;
	switch (packet->sender.protocol) {
	case IPPROTO_TCP:
		packet->is_flow = (void *)(tcp + 1) <= end && !tcp->syn;
		/* fall through */
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		packet->source_port = transport->first;
		packet->sender.port = transport->second;
		break;
	case IPPROTO_ICMPV6:
		packet->is_neighbour = *(__u8 *)at >= ND_FIRST && *(__u8 *)at <= ND_LAST;
		break;
	}
}

static SHED_INLINE int read_ipv4(struct shed_packet *packet, void *at, void *end)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > end || ip->ihl < 5)
		return 0;
	packet->sender.family = AF_INET;
	packet->sender.protocol = ip->protocol;
	packet->sender.address[0] = ip->saddr;
	packet->destination[0] = ip->daddr;
	/* Behind the first fragment there are no ports: all such packets are one "port" of their protocol. */
	if (!(ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET)))
		read_transport(packet, at + ip->ihl * 4, end);
	return 1;
}

/* Extension headers are not gone through: a packet with one is addressed to its first header. */
static SHED_INLINE int read_ipv6(struct shed_packet *packet, void *at, void *end)
{
	struct ipv6hdr *ip = at;

	if ((void *)(ip + 1) > end)
		return 0;
	packet->sender.family = AF_INET6;
	packet->sender.protocol = ip->nexthdr;
	__builtin_memcpy(packet->sender.address, &ip->saddr, 16);
	__builtin_memcpy(packet->destination, &ip->daddr, 16);
	read_transport(packet, ip + 1, end);
	/* From beyond a router it is none, and the stack drops it (RFC 4861, section 7.1). */
	packet->is_neighbour &= ip->hop_limit == 255;
	return 1;
}

/* Reads a frame. 0 for what is nobody's. */
static SHED_INLINE int read_frame(struct shed_packet *packet, void *data, void *end)
{
	struct ethhdr *ethernet = data;
	void *at = ethernet + 1;
	__be16 protocol;

	if (at > end)
		return 0;
	protocol = ethernet->h_proto;
#pragma unroll
	for (int tags = 0; tags < MOST_TAGS; tags++) {
		struct tag *tag = at;

		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return 0;
		protocol = tag->protocol;
		at = tag + 1;
	}
	if (protocol == bpf_htons(ETH_P_IP))
		return read_ipv4(packet, at, end);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return read_ipv6(packet, at, end);
	return 0;
}

static SHED_INLINE __u32 ipv4_key(__be32 address, __u32 device)
{
	return shed_mix(address ^ secret ^ device * 0x9e3779b9U);
}

/* An IPv6 source is its /64: whoever has one address of it has all. */
static SHED_INLINE __u32 source_key(const struct shed_packet *packet, __u32 device)
{
	__u32 key = ipv4_key(packet->sender.address[0], device);

	return packet->sender.family == AF_INET6 ? shed_mix(key ^ packet->sender.address[1]) : key;
}

/* The same port for opening a connection and within one is two: a flood of SYNs does not touch who is in. */
static SHED_INLINE __u32 port_key(__be16 port, __u8 protocol, __u8 is_flow, __u32 device)
{
	return shed_mix((port | (__u32)protocol << 16 | (__u32)is_flow << 24) ^ secret ^ device * 0x85ebca6bU);
}

#endif
