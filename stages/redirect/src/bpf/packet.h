/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the headers of a packet are. Nothing here writes; nothing reads past `end`.
 */
#ifndef TARN_REDIRECT_PACKET_H
#define TARN_REDIRECT_PACKET_H

#define AF_INET 2
#define AF_INET6 10

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define IPPROTO_HOPOPTS 0
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60

#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_MORE_FRAGMENTS 0x2000

#define ETHERNET_LENGTH 14

/* As many extension headers as the stack's own users send, and more than any sane packet has. */
#define MOST_EXTENSION_HEADERS 8
/* Of an IPv6 header with its extension headers; bounds the verifier's view of offsets. */
#define IPV6_LONGEST_HEADERS 1024
/* Of a packet, from its start to its ports. */
#define LONGEST_HEADERS (ETHERNET_LENGTH + 40 + IPV6_LONGEST_HEADERS)

/* Traffic class and flow label, in the first word of an IPv6 header. */
#define IPV6_FLOWINFO 0x0fffffff

#define UDP_CHECKSUM_OFFSET 6
#define TCP_CHECKSUM_OFFSET 16

#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif

/* What a handler says besides its program type's own verdicts. */
#define PASS (-1)		/* not ours, or rewritten and left to the stack: TC_ACT_UNSPEC, TCX_NEXT */

#define TC_ACT_SHOT 2
#define TC_ACT_STOLEN 4

/* Verdicts that become TC_ACT_SHOT where they are counted: see counted(). */
#define LOST_ANSWER (-2)
#define REFUSED_SOURCE (-3)

/* The mark of a fragment sent back to us. */
#define REWRITTEN_MARK 0x6e726174

/* The addresses and ports of a packet of either family, in one form for what is not done for every packet. */
struct tuple {
	struct address source;
	struct address destination;
	__u32 ports;
	__u32 traffic_class;	/* routes can depend on it: the type of service, or class and flow label; as in bpf_fib_lookup */
	__u8 protocol;
	__u8 family;
};

static __always_inline __u16 source_port(__u32 ports)
{
	return ports & 0xffff;
}

static __always_inline __u16 destination_port(__u32 ports)
{
	return ports >> 16;
}

static __always_inline __u32 join_ports(__u16 source, __u16 destination)
{
	return source | (__u32)destination << 16;
}

static __always_inline bool is_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET);
}

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_UDP || protocol == IPPROTO_TCP;
}

static __always_inline __u32 checksum_offset(__u8 protocol)
{
	return protocol == IPPROTO_UDP ? UDP_CHECKSUM_OFFSET : TCP_CHECKSUM_OFFSET;
}

/* Of the transport header. */
static __always_inline __u32 least_length(bool is_udp)
{
	return is_udp ? sizeof(struct udphdr) : sizeof(struct tcphdr);
}

static __always_inline void copy_address(__u32 *to, const __u32 *from)
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] &&
	       a->word[2] == b->word[2] && a->word[3] == b->word[3];
}

static __always_inline void fill_tuple4(struct tuple *tuple, const struct flow_key4 *key, const struct iphdr *ip)
{
	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->source.word[0] = key->source;
	tuple->destination.word[0] = key->destination;
	tuple->ports = key->ports;
	tuple->traffic_class = ip->tos;
	tuple->protocol = key->protocol;
	tuple->family = AF_INET;
}

static __always_inline void fill_tuple6(struct tuple *tuple, const struct flow_key6 *key, const struct ipv6hdr *ip)
{
	tuple->traffic_class = *(const __u32 *)ip & bpf_htonl(IPV6_FLOWINFO);
	copy_address(tuple->source.word, key->source);
	copy_address(tuple->destination.word, key->destination);
	tuple->ports = key->ports;
	tuple->protocol = key->protocol;
	tuple->family = AF_INET6;
}

/* What follows the fixed header of an IPv6 packet. */
struct extensions {
	__u32 length;		/* of all extension headers */
	__u8 protocol;		/* behind them */
	__u8 has_fragment;	/* a fragment header is among them: its offset from the start of the IPv6 header */
	__u16 fragment;
};

/* The extension headers that can be read: a set, so that the verifier has one way to follow and not one a header. */
#define EXTENSION_HEADERS (1ULL << IPPROTO_HOPOPTS | 1ULL << IPPROTO_ROUTING | 1ULL << IPPROTO_FRAGMENT | \
			   1ULL << IPPROTO_DSTOPTS)

static __always_inline bool is_extension(__u8 next)
{
	return next < 64 && (EXTENSION_HEADERS >> next & 1);
}

/*
 * Walks the extension headers from `offset` (from the packet's start) on. Returns 0, or PASS for a chain that we cannot
 * read: longer than MOST_EXTENSION_HEADERS or than what is linear, or with a routing header that still has segments to
 * visit (then the destination is not the final one).
 */
static __noinline int walk_extensions(void *data, void *end, __u32 offset, __u8 next, struct extensions *found)
{
	__u32 start = offset;

	for (int i = 0; i < MOST_EXTENSION_HEADERS; i++) {
		__u8 *header;

		if (!is_extension(next)) {
			found->protocol = next;
			found->length = offset - start;
			return 0;
		}
		if (offset > IPV6_LONGEST_HEADERS)
			return PASS;
		header = data + offset;
		if ((void *)(header + 8) > end)
			return PASS;
		if (next == IPPROTO_ROUTING && header[3])
			return PASS;
		if (next == IPPROTO_FRAGMENT) {
			if (found->has_fragment)
				return PASS;
			found->has_fragment = 1;
			found->fragment = offset - start;
			next = header[0];
			offset += 8;
			if (bpf_ntohs(*(__u16 *)(header + 2)) & ~7) {	/* not the first: no header follows */
				found->protocol = next;
				found->length = offset - start;
				return 0;
			}
			continue;
		}
		next = header[0];
		offset += (header[1] + 1) * 8;
	}
	return PASS;
}

#endif
