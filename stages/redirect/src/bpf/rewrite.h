/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Carries a decision out on a packet at tc: addresses, ports, checksums, Ethernet header, next hop.
 *
 * What the L4 checksum field holds depends on sk_buff's ip_summed:
 *   CHECKSUM_NONE, CHECKSUM_UNNECESSARY: the checksum itself: add the differences of address and port.
 *   CHECKSUM_PARTIAL: the sum of the pseudo header only, not inverted (a local sender leaves the rest to the
 *     device): add the address's difference, leave the port out.
 *   CHECKSUM_COMPLETE: the checksum itself, and skb->csum, the sum over the packet, must follow. In IPv4 it does not
 *     change with the header, which is made up for by the header's own checksum, but with the L4 checksum: the kernel's
 *     helper sees to that. In IPv6 the L4 checksum makes up for the address, and the sum stays. The helper does not know
 *     that (6.16 has a flag to tell it), so what it did is taken back, by a helper that does nothing in other states.
 *     Nothing makes up for the IPv6 hop limit: its change goes into the sum.
 * ip_summed can be read from 6.2 on (bpf_cast_to_kern_ctx); before, the helper does all of them.
 */
#ifndef TARN_REDIRECT_REWRITE_H
#define TARN_REDIRECT_REWRITE_H

#define CHECKSUM_NONE 0
#define CHECKSUM_UNNECESSARY 1
#define CHECKSUM_COMPLETE 2
#define CHECKSUM_PARTIAL 3
#define CHECKSUM_UNKNOWN CHECKSUM_COMPLETE	/* the helper does what is right */

/* The hop limit falls by one: the second byte of a 16-bit word, so ~0x0001 = 0xfffe is added to the sum. */
#define HOP_LIMIT_DIFFERENCE bpf_htons(0xfffe)

#define CHECKSUM_MANGLED 0xffff			/* a computed UDP checksum of 0 (RFC 768) */

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

static __always_inline __u32 checksum_state(struct __sk_buff *ctx)
{
	struct sk_buff *skb;

	if (!bpf_ksym_exists(bpf_cast_to_kern_ctx))
		return CHECKSUM_UNKNOWN;
	skb = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(skb, ip_summed);
}

/* Adjusts the field in place for all states but CHECKSUM_COMPLETE. */
static __always_inline void adjust_l4_checksum(__u16 *field, const struct flow *flow, bool is_udp, __u32 state)
{
	__u16 checksum = *field;

	if (state == CHECKSUM_PARTIAL) {
		*field = add_folded(checksum, flow->address_difference);
		return;
	}
	if (is_udp && !checksum)	/* the sender asked for none */
		return;
	checksum = adjust_checksum(checksum, add_folded(flow->address_difference, flow->port_difference));
	*field = is_udp && !checksum ? CHECKSUM_MANGLED : checksum;
}

/* The same by the kernel's helper, which knows ip_summed. Invalidates every pointer into the packet. */
static __always_inline void replace_l4_checksum(struct __sk_buff *ctx, __u32 offset, const struct flow *flow, bool is_udp)
{
	__u64 flags = is_udp ? BPF_F_MARK_MANGLED_0 : 0;

	bpf_l4_csum_replace(ctx, offset, 0, flow->address_difference, flags | BPF_F_PSEUDO_HDR);
	bpf_l4_csum_replace(ctx, offset, 0, flow->port_difference, flags);
}

/* The same in IPv6. */
static __always_inline void replace_l4_checksum6(struct __sk_buff *ctx, __u32 offset, const struct flow *flow, bool is_udp,
						 bool by_stack)
{
	replace_l4_checksum(ctx, offset, flow, is_udp);
	bpf_csum_update(ctx, by_stack ? flow->address_difference :
					add_folded(flow->address_difference, HOP_LIMIT_DIFFERENCE));
}

static __always_inline void rewrite_ethernet(void *data, const struct flow *flow)
{
	__u32 *to = data;
	const __u32 *from = (const __u32 *)flow->ethernet;

	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
}

/* The IPv4 header; the time to live falls only where no stack will see to it. */
static __always_inline void rewrite_ipv4(struct iphdr *ip, const struct flow *flow, bool by_stack)
{
	__u16 difference = flow->header_difference;

	if (flow->is_reply)
		ip->saddr = flow->address.word[0];
	else
		ip->daddr = flow->address.word[0];
	if (by_stack)
		difference = flow->address_difference;
	else
		ip->ttl -= 1;
	ip->check = adjust_checksum(ip->check, difference);
}

static __always_inline void rewrite_ipv6(struct ipv6hdr *ip, const struct flow *flow, bool by_stack)
{
	if (flow->is_reply)
		copy_address(ip->saddr.in6_u.u6_addr32, flow->address.word);
	else
		copy_address(ip->daddr.in6_u.u6_addr32, flow->address.word);
	if (!by_stack)
		ip->hop_limit -= 1;
}

/* `ports` points to source and destination. */
static __always_inline void rewrite_port(__u16 *ports, const struct flow *flow)
{
	if (flow->is_reply)
		ports[0] = flow->port;
	else
		ports[1] = flow->port;
}

/*
 * What goes straight to a link is not seen by the kernel's neighbour table, which would never ask again whether the next
 * hop's address still holds. So a packet whose next hop has just been looked up (one a second of a flow) goes by it.
 */
static __always_inline void let_neighbour_be_seen(const struct scratch *scratch, struct flow *decided)
{
	if (scratch->has_hop && decided->delivery == BY_EGRESS)
		decided->delivery = BY_NEIGHBOUR;
}

/* Sends the packet to the next hop that was just looked up. */
static __noinline int deliver_by_neighbour(__u32 ifindex)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return bpf_redirect(ifindex, 0);
	return bpf_redirect_neigh(ifindex, &scratch->hop, sizeof(scratch->hop), 0);
}

/* Sends the packet on its way: the verdict for the tc program to return. */
static __always_inline int deliver(const struct flow *flow, bool by_stack)
{
	if (by_stack) {
		count_event(passed_to_stack);
		return PASS;
	}
	if (flow->delivery == BY_PEER)
		return bpf_redirect_peer(flow->ifindex, 0);
	if (flow->delivery == BY_NEIGHBOUR)
		return deliver_by_neighbour(flow->ifindex);
	return bpf_redirect(flow->ifindex, 0);
}

#endif
