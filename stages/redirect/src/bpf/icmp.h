/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ICMP errors about redirected packets. An error quotes the packet it is about, as it was where the error arose:
 *
 *   about a request, on its way to the client: quotes client -> target. The client must find the address that it
 *     spoke to: the quoted destination changes, and the error's own source where that is the target.
 *   about an answer, on its way to the server: quotes redirected address -> client. The quoted source becomes the
 *     target's, and so does the error's own destination, or it would end at this host.
 *
 * Either way the quoted packet, turned round, is the key of the flow that tells the change: its differences are those
 * of the quoted addresses and ports, too. The error then goes by the stack. Errors are rare: helpers do the access.
 *
 * An error that the target itself sends to the client waits for tc egress, as answers that go by the stack do: from the
 * redirected address, which is one of this host's, the stack would take it for forged.
 *
 * ICMP redirects about our flows are dropped, as netfilter's NAT drops them. They are advice to a neighbour about a
 * destination, and behind a translation the advice is about another one: whoever knows a flow's addresses could send the
 * server advice that it takes to come from its own router. Those of IPv6 never come past a router (RFC 4861, section 8.1).
 */
#ifndef TARN_REDIRECT_ICMP_H
#define TARN_REDIRECT_ICMP_H

#define ICMP_DEST_UNREACH 3
#define ICMP_SOURCE_QUENCH 4
#define ICMP_REDIRECT 5
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_ERRORS_END 127		/* types below are errors (RFC 4443, section 2.1) */
#define ICMP_HEADER_LENGTH 8

/* Where the parts of an error lie in the packet. */
struct quote {
	__u32 ip;		/* the quoted IP header */
	__u32 l4;		/* the quoted ports */
	__u8 protocol;
	__u8 has_checksum;	/* the quote reaches to the L4 checksum */
	__u16 checksum;
};

static __always_inline bool is_icmp_error(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_SOURCE_QUENCH || type == ICMP_REDIRECT ||
	       type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
}

static __always_inline int store16(struct __sk_buff *ctx, __u32 offset, __u16 value)
{
	return bpf_skb_store_bytes(ctx, offset, &value, sizeof(value), 0);
}

/*
 * Adjusts a 16-bit checksum field in the packet by a difference. Returns the field's own difference, which whatever
 * sums over the field must be adjusted by.
 */
static __noinline int adjust_field(struct __sk_buff *ctx, __u32 offset, __u16 difference)
{
	__u16 old, new;

	if (bpf_skb_load_bytes(ctx, offset, &old, sizeof(old)))
		return 0;
	new = adjust_checksum(old, difference);
	if (store16(ctx, offset, new))
		return 0;
	return word_difference(old, new);
}

/* The quoted packet's ports and L4 checksum, into `tuple` as the flow's key: turned round. */
static __noinline int read_quoted_ports(struct __sk_buff *ctx, struct quote *quote, struct tuple *tuple)
{
	__u32 ports;

	if (!has_ports(quote->protocol) || bpf_skb_load_bytes(ctx, quote->l4, &ports, sizeof(ports)))
		return PASS;
	tuple->ports = ports >> 16 | ports << 16;
	tuple->protocol = quote->protocol;
	quote->has_checksum = !bpf_skb_load_bytes(ctx, quote->l4 + checksum_offset(quote->protocol), &quote->checksum,
						  sizeof(quote->checksum));
	if (quote->protocol == IPPROTO_UDP && !quote->checksum)
		quote->has_checksum = 0;
	return 0;
}

/*
 * Rewrites the quoted port, L4 checksum and address at `address_offset`; returns the sum of all differences that the
 * ICMP checksum covers.
 */
static __noinline int rewrite_quote(struct __sk_buff *ctx, const struct quote *quote, const struct flow *flow, __u32 address_offset, __u32 length)
{
	__u16 both = add_folded(flow->address_difference, flow->port_difference);
	__u16 change = both;

	bpf_skb_store_bytes(ctx, address_offset, &flow->address, length == 4 ? 4 : 16, 0);
	/* The answer's flow restores what the request was sent to: the destination. */
	store16(ctx, quote->l4 + (flow->is_reply ? 2 : 0), flow->port);
	if (quote->has_checksum)
		change = add_folded(change, adjust_field(ctx, quote->l4 + checksum_offset(quote->protocol), both));
	return change;
}

__noinline int icmp4(struct __sk_buff *ctx, __u32 l3, __u32 icmp, __u32 egress)
{
	struct scratch *scratch = get_scratch();
	struct quote quote = { .ip = icmp + ICMP_HEADER_LENGTH };
	__u32 outer, offset, outside;
	struct iphdr ip;
	struct flow *flow;
	struct tuple *tuple;
	__u16 change;
	bool is_end;
	__u8 type;

	if (!scratch)
		return PASS;
	tuple = &scratch->packet;
	if (bpf_skb_load_bytes(ctx, icmp, &type, sizeof(type)) || !is_icmp_error(type))
		return PASS;
	if (bpf_skb_load_bytes(ctx, quote.ip, &ip, sizeof(ip)))
		return PASS;
	if (ip.version != 4 || ip.ihl < 5 || (ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET)))
		return PASS;
	quote.protocol = ip.protocol;
	quote.l4 = quote.ip + ip.ihl * 4;
	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->family = AF_INET;
	tuple->source.word[0] = ip.daddr;
	tuple->destination.word[0] = ip.saddr;
	if (read_quoted_ports(ctx, &quote, tuple))
		return PASS;
	if (load_flow(tuple))
		return PASS;
	flow = &scratch->flow;
	if (type == ICMP_REDIRECT) {
		count_event(icmp_redirect_dropped);
		return TC_ACT_SHOT;
	}
	/* The error's own address, on the other side: is it the target's, or the address redirected? */
	outside = l3 + (flow->is_reply ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));
	if (bpf_skb_load_bytes(ctx, outside, &outer, sizeof(outer)))
		return PASS;
	is_end = outer == (flow->is_reply ? tuple->source.word[0] : tuple->destination.word[0]);
	if (is_end && flow->is_reply && !egress)
		return PASS;
	offset = flow->is_reply ? offsetof(struct iphdr, daddr) : offsetof(struct iphdr, saddr);
	change = rewrite_quote(ctx, &quote, flow, quote.ip + offset, 4);
	change = add_folded(change, adjust_field(ctx, quote.ip + offsetof(struct iphdr, check), flow->address_difference));
	adjust_field(ctx, icmp + offsetof(struct icmphdr, checksum), change);
	if (is_end) {
		bpf_skb_store_bytes(ctx, outside, &flow->address, 4, 0);
		adjust_field(ctx, l3 + offsetof(struct iphdr, check), flow->address_difference);
	}
	count_event(icmp_error_rewritten);
	return PASS;
}

__noinline int icmp6(struct __sk_buff *ctx, __u32 l3, __u32 icmp, __u32 egress)
{
	struct scratch *scratch = get_scratch();
	struct quote quote = { .ip = icmp + ICMP_HEADER_LENGTH };
	struct address *outer;
	struct tuple *tuple;
	struct ipv6hdr *ip;
	struct flow *flow;
	__u32 offset, outside;
	__u16 change;
	bool is_end;
	__u8 type;

	if (!scratch)
		return PASS;
	tuple = &scratch->packet;
	ip = &scratch->quoted6;
	outer = &scratch->source.address;
	if (bpf_skb_load_bytes(ctx, icmp, &type, sizeof(type)) || type > ICMPV6_ERRORS_END)
		return PASS;
	if (bpf_skb_load_bytes(ctx, quote.ip, ip, sizeof(*ip)))
		return PASS;
	/* Quoted extension headers are not read: senders of redirected traffic have no use for them. */
	quote.protocol = ip->nexthdr;
	quote.l4 = quote.ip + sizeof(*ip);
	tuple->family = AF_INET6;
	copy_address(tuple->source.word, ip->daddr.in6_u.u6_addr32);
	copy_address(tuple->destination.word, ip->saddr.in6_u.u6_addr32);
	if (read_quoted_ports(ctx, &quote, tuple))
		return PASS;
	if (load_flow(tuple))
		return PASS;
	flow = &scratch->flow;
	outside = l3 + (flow->is_reply ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr));
	if (bpf_skb_load_bytes(ctx, outside, outer, sizeof(*outer)))
		return PASS;
	is_end = same_address(outer, flow->is_reply ? &tuple->source : &tuple->destination);
	if (is_end && flow->is_reply && !egress)
		return PASS;
	offset = flow->is_reply ? offsetof(struct ipv6hdr, daddr) : offsetof(struct ipv6hdr, saddr);
	change = rewrite_quote(ctx, &quote, flow, quote.ip + offset, 16);
	if (is_end) {
		bpf_skb_store_bytes(ctx, outside, &flow->address, 16, 0);
		change = add_folded(change, flow->address_difference);	/* of the pseudo header */
	}
	adjust_field(ctx, icmp + offsetof(struct icmp6hdr, icmp6_cksum), change);
	count_event(icmp_error_rewritten);
	return PASS;
}

#endif
