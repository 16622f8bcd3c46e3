/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The XDP program: as tc ingress, before an sk_buff is there, for plain packets: untagged, without IP options or
 * extension headers. It leaves all others to tc ingress, as they are.
 *
 * On a veth the frame may come from an sk_buff of a local sender, whose checksum field holds the sum of the pseudo
 * header only (CHECKSUM_PARTIAL), and XDP cannot see which it is. A field that equals that sum is left to the tc
 * program, which can. One whole checksum in 65,535 looks so, too, and takes that longer way.
 */
#ifndef TARN_REDIRECT_XDP_H
#define TARN_REDIRECT_XDP_H

/*
 * Where a plain packet's headers are. No structure can say so: an IP header behind 14 bytes of Ethernet is not where
 * the compiler would align it.
 */
#define PLAIN_IP ETHERNET_LENGTH
#define PLAIN_L4(header) (PLAIN_IP + sizeof(header))

/* One's complement sums have two zeros. */
static __always_inline bool same_sum(__u16 a, __u16 b)
{
	return a == b || (a % 0xffff == 0 && b % 0xffff == 0);
}

static __always_inline __u32 sum_words(const __u32 *words, int count)
{
	__u32 sum = 0;

	for (int i = 0; i < count; i++)
		sum += (words[i] & 0xffff) + (words[i] >> 16);
	return sum;
}

/* Whether the packet is as long as it says, and has room for its headers; the stack throws away what is not. */
static __always_inline bool is_all_there(void *ip, void *end, __u32 length, __u32 header, __u8 protocol)
{
	return length >= header + least_length(protocol == IPPROTO_UDP) && length <= end - ip;
}

/* Whether the packet can go on from here. It must not be touched before this says yes. */
static __always_inline bool goes_on(const struct flow *flow, __u8 time_to_live, __u32 length)
{
	return flow->by_xdp && time_to_live > 1 && length <= flow->longest;
}

/* What is left to be done when the IP header is rewritten. */
static __always_inline int send_on(void *data, void *l4, __u16 *checksum, const struct flow *flow, __u8 protocol)
{
	rewrite_port(l4, flow);
	adjust_l4_checksum(checksum, flow, protocol == IPPROTO_UDP, CHECKSUM_NONE);
	rewrite_ethernet(data, flow);
	return bpf_redirect_map(&xdp_devices, flow->ifindex, XDP_PASS);
}

static __always_inline int xdp4(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + PLAIN_IP;
	void *l4 = data + PLAIN_L4(*ip);
	struct scratch *scratch;
	struct flow_key4 key;
	struct flow *flow;
	__u16 *checksum;
	__u32 length;

	if (l4 + 8 > end || !has_ports(ip->protocol))
		return XDP_PASS;
	checksum = find_checksum(l4, ip->protocol);
	if ((void *)(checksum + 1) > end || ip->version != 4 || ip->ihl != 5 || is_fragment(ip))
		return XDP_PASS;
	key.ports = *(__u32 *)l4;
	if (!has_port_of_ours(key.ports, false))
		return XDP_PASS;
	key.source = ip->saddr;
	key.destination = ip->daddr;
	key.protocol = ip->protocol;
	length = bpf_ntohs(ip->tot_len);
	if (!is_all_there(ip, end, length, sizeof(*ip), key.protocol))
		return XDP_PASS;
	if (same_sum(*checksum, fold(sum_words(&key.source, 2) + bpf_htons(key.protocol) +
				     bpf_htons(length - sizeof(*ip)))))
		return XDP_PASS;
	flow = find_flow4(&key, key.protocol == IPPROTO_UDP);
	if (!flow || !is_settled(flow, ctx->ingress_ifindex)) {
		scratch = get_scratch();
		if (!scratch)
			return XDP_PASS;
		fill_tuple4(&scratch->packet, &key, ip);
		if (decide_at_xdp(ctx, flow))
			return XDP_PASS;
		flow = &scratch->flow;
	}
	if (!goes_on(flow, ip->ttl, length))
		return XDP_PASS;
	if (!flow->is_reply)
		count_packet(flow->rule, length);
	rewrite_ipv4(ip, flow, false);
	return send_on(data, l4, checksum, flow, key.protocol);
}

static __always_inline int xdp6(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip = data + PLAIN_IP;
	void *l4 = data + PLAIN_L4(*ip);
	struct scratch *scratch;
	struct flow_key6 key;
	struct flow *flow;
	__u16 *checksum;
	__u32 length;

	if (l4 + 8 > end || !has_ports(ip->nexthdr))
		return XDP_PASS;
	checksum = find_checksum(l4, ip->nexthdr);
	if ((void *)(checksum + 1) > end || ip->version != 6)
		return XDP_PASS;
	key.ports = *(__u32 *)l4;
	if (!has_port_of_ours(key.ports, false))
		return XDP_PASS;
	copy_address(key.source, ip->saddr.in6_u.u6_addr32);
	copy_address(key.destination, ip->daddr.in6_u.u6_addr32);
	key.protocol = ip->nexthdr;
	length = bpf_ntohs(ip->payload_len);
	if (!is_all_there(ip, end, length + sizeof(*ip), sizeof(*ip), key.protocol))
		return XDP_PASS;
	if (same_sum(*checksum, fold(sum_words(key.source, 8) + bpf_htons(key.protocol) + bpf_htons(length))))
		return XDP_PASS;
	length += sizeof(*ip);
	flow = find_flow6(&key, key.protocol == IPPROTO_UDP);
	if (!flow || !is_settled(flow, ctx->ingress_ifindex)) {
		scratch = get_scratch();
		if (!scratch)
			return XDP_PASS;
		fill_tuple6(&scratch->packet, &key, ip);
		if (decide_at_xdp(ctx, flow))
			return XDP_PASS;
		flow = &scratch->flow;
	}
	if (!goes_on(flow, ip->hop_limit, length))
		return XDP_PASS;
	if (!flow->is_reply)
		count_packet(flow->rule, length);
	rewrite_ipv6(ip, flow, false);
	return send_on(data, l4, checksum, flow, key.protocol);
}

static __always_inline int xdp_ingress(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (ethernet->h_dest[0] & 1)	/* multicast and broadcast are nobody's address */
		return XDP_PASS;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		return xdp4(ctx);
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return xdp6(ctx);
	return XDP_PASS;
}

#endif
