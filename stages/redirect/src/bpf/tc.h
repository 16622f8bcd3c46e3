/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tc programs. The path of a packet of a known flow is written for few instructions: headers, two bit tests, one
 * lookup, rewrite, next hop. Everything else is in functions of its own.
 */
#ifndef TARN_REDIRECT_TC_H
#define TARN_REDIRECT_TC_H

#define PACKET_HOST 0

/* Of a packet, behind the link's header: what holds an IPv6 and a TCP header; what holds options, too. */
#define PLAIN_HEADERS_LENGTH 60
#define HEADERS_LENGTH 240

/*
 * A packet too long for its next hop's link; of one to be segmented, the segments count: gso_size bytes behind all of
 * its headers, of which `headers` bytes are the network's.
 */
static __always_inline bool is_too_long(struct __sk_buff *ctx, const struct flow *flow, __u32 length, __u32 headers,
					const void *l4, bool is_udp)
{
	if (length <= flow->longest)
		return false;
	if (!ctx->gso_size)
		return true;
	if (is_udp) {
		headers += sizeof(struct udphdr);
	} else {
		const __u8 *tcp = l4;

		if ((void *)(tcp + sizeof(struct tcphdr)) > (void *)(long)ctx->data_end)
			return true;
		headers += (tcp[12] >> 4) * 4;	/* the data offset */
	}
	return ctx->gso_size + headers > flow->longest;
}

/*
 * The IP packet's length; 0 unless it is all there, and has room for its transport header behind `headers` bytes of its
 * own: the stack throws away what is not. Packets of segments beyond 64 KiB (BIG TCP) do not tell their length.
 */
static __always_inline __u32 true_length(struct __sk_buff *ctx, __u32 l3, __u32 length, __u32 headers, bool is_udp)
{
	if (l3 + length <= ctx->len && length >= headers + least_length(is_udp))
		return length;
	return ctx->gso_size ? ctx->len - l3 : 0;
}

/*
 * The L4 checksum's place. The verifier must see the bound that was checked on the very pointer that is used later,
 * so the compiler may not compute it twice.
 */
static __always_inline __u16 *find_checksum(void *l4, __u8 protocol)
{
	void *checksum = l4 + checksum_offset(protocol);

	barrier_var(checksum);
	return checksum;
}

/* What carry_out() is told of a packet, beside its protocol. */
#define GOES_BY_STACK 0x100
#define AT_EGRESS 0x200

/*
 * Rewrites a packet whose ports are at `offset`, and sends it on. Returns the verdict. `how` is its protocol, with the
 * flags above. A function of its own: so it is verified once, and not for every way that leads here. The arguments are
 * 64 bits wide because 6.1's verifier forgets the bounds of what is kept on the stack in 32.
 */
__noinline int carry_out(struct __sk_buff *ctx, const struct flow *flow, __u64 l3, __u64 offset, __u64 how)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	bool is_ipv4 = ctx->protocol == bpf_htons(ETH_P_IP), by_stack = how & GOES_BY_STACK;
	__u8 protocol = how;
	bool is_udp = protocol == IPPROTO_UDP;
	void *ip, *l4;
	__u16 *checksum;
	__u32 state;

	if (!flow || l3 > ETHERNET_LENGTH || offset > LONGEST_HEADERS)
		return PASS;
	ip = data + l3;
	l4 = data + offset;
	checksum = find_checksum(l4, protocol);
	if (data + ETHERNET_LENGTH > end || ip + sizeof(struct iphdr) > end || l4 + 4 > end || (void *)(checksum + 1) > end)
		return PASS;
	if (is_ipv4)
		rewrite_ipv4(ip, flow, by_stack);
	else if (ip + sizeof(struct ipv6hdr) > end)
		return PASS;
	else
		rewrite_ipv6(ip, flow, by_stack);
	rewrite_port(l4, flow);
	if (!by_stack && l3)
		rewrite_ethernet(data, flow);
	state = checksum_state(ctx);
	if (state != CHECKSUM_UNKNOWN)
		adjust_l4_checksum(checksum, flow, is_udp, state);
	else if (is_ipv4)
		replace_l4_checksum(ctx, offset + checksum_offset(protocol), flow, is_udp);
	else
		replace_l4_checksum6(ctx, offset + checksum_offset(protocol), flow, is_udp, by_stack);
	return how & AT_EGRESS ? PASS : deliver(flow, by_stack);
}

/* What is known of the packet's flow is carried out, but answers that go by the stack wait for egress as they are. */
static __always_inline int go_on(struct __sk_buff *ctx, const struct flow *flow, __u32 l3, __u32 offset, __u8 protocol,
				 __u32 length, bool by_stack, bool egress)
{
	if (!flow->is_reply)
		count_packet(flow->rule, length);
	else if (by_stack && !egress)
		return PASS;
	return carry_out(ctx, flow, l3, offset, protocol | (by_stack ? GOES_BY_STACK : 0) | (egress ? AT_EGRESS : 0));
}

/* Packets that are not plain TCP or UDP: fragments and ICMP. */
static __always_inline int handle_rare4(struct __sk_buff *ctx, const struct iphdr *ip, __u32 l3, __u32 offset, bool egress)
{
	if (is_fragment(ip))
		return fragment4(ctx, l3, egress);
	return ip->protocol == IPPROTO_ICMP ? icmp4(ctx, l3, offset, egress) : PASS;
}

static __always_inline int handle_rare6(struct __sk_buff *ctx, const struct extensions *extensions, __u32 l3,
					__u32 offset, bool egress)
{
	if (extensions->has_fragment) {
		struct scratch *scratch = get_scratch();

		if (!scratch)
			return PASS;
		scratch->packet.protocol = extensions->protocol;
		return fragment6(ctx, l3, sizeof(struct ipv6hdr) + extensions->fragment, offset, egress);
	}
	return extensions->protocol == IPPROTO_ICMPV6 ? icmp6(ctx, l3, offset, egress) : PASS;
}

static __always_inline int handle4(struct __sk_buff *ctx, __u32 l3, bool egress)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + l3;
	struct flow *flow;
	struct flow_key4 key;
	__u32 offset, length;
	bool by_stack, is_udp;
	void *l4;

	if ((void *)(ip + 1) > end)
		return PASS;
	if (ip->version != 4 || ip->ihl < 5)
		return PASS;
	offset = l3 + ip->ihl * 4;
	if (!has_ports(ip->protocol) || is_fragment(ip))
		return handle_rare4(ctx, ip, l3, offset, egress);
	is_udp = ip->protocol == IPPROTO_UDP;
	l4 = data + offset;
	if (l4 + 8 > end || l4 + least_length(is_udp) > end)
		return PASS;
	key.ports = *(__u32 *)l4;
	if (!has_port_of_ours(key.ports, egress))
		return PASS;
	length = true_length(ctx, l3, bpf_ntohs(ip->tot_len), offset - l3, is_udp);
	if (!length)
		return PASS;
	key.source = ip->saddr;
	key.destination = ip->daddr;
	key.protocol = ip->protocol;
	flow = find_flow4(&key, is_udp);
	if (egress && flow && !flow->is_reply)
		return PASS;
	if (!flow || (egress ? flow->stage == WATCHED : !is_settled(flow, ctx->ingress_ifindex))) {
		struct scratch *scratch = get_scratch();
		int verdict;

		if (!scratch)
			return PASS;
		fill_tuple4(&scratch->packet, &key, ip);
		fill_marks(&scratch->marks, l4, end, is_udp);
		verdict = egress ? decide_at_egress(flow) : decide_at_tc(ctx, flow);
		if (verdict)
			return verdict;
		if (!egress) {
			flow = &scratch->flow;
			let_neighbour_be_seen(scratch, flow);
		} else if (!flow) {
			return PASS;
		}
	}
	/* Options are a router's business: the stack records routes and times. Without an Ethernet header, no link takes it. */
	by_stack = egress || !l3 || flow->delivery == BY_STACK || ip->ttl <= 1 || ip->ihl > 5 ||
		   is_too_long(ctx, flow, length, offset - l3, l4, is_udp);
	return go_on(ctx, flow, l3, offset, key.protocol, length, by_stack, egress);
}

static __always_inline int handle6(struct __sk_buff *ctx, __u32 l3, bool egress)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6hdr *ip = data + l3;
	struct extensions extensions = {};
	struct flow *flow;
	struct flow_key6 key;
	__u32 offset, length;
	bool by_stack, is_udp;
	__u8 protocol;
	void *l4;

	if ((void *)(ip + 1) > end)
		return PASS;
	if (ip->version != 6)
		return PASS;
	offset = l3 + sizeof(*ip);
	protocol = ip->nexthdr;
	if (!has_ports(protocol)) {
		int verdict = walk_extensions(data, end, offset, protocol, &extensions);

		if (verdict)
			return verdict;
		if (extensions.length > IPV6_LONGEST_HEADERS)
			return PASS;
		protocol = extensions.protocol;
		offset += extensions.length;
		if (extensions.has_fragment || !has_ports(protocol))
			return handle_rare6(ctx, &extensions, l3, offset, egress);
	}
	is_udp = protocol == IPPROTO_UDP;
	l4 = data + offset;
	if (l4 + 8 > end || l4 + least_length(is_udp) > end)
		return PASS;
	key.ports = *(__u32 *)l4;
	if (!has_port_of_ours(key.ports, egress))
		return PASS;
	length = true_length(ctx, l3, bpf_ntohs(ip->payload_len) + sizeof(*ip), offset - l3, is_udp);
	if (!length)
		return PASS;
	copy_address(key.source, ip->saddr.in6_u.u6_addr32);
	copy_address(key.destination, ip->daddr.in6_u.u6_addr32);
	key.protocol = protocol;
	flow = find_flow6(&key, is_udp);
	if (egress && flow && !flow->is_reply)
		return PASS;
	if (!flow || (egress ? flow->stage == WATCHED : !is_settled(flow, ctx->ingress_ifindex))) {
		struct scratch *scratch = get_scratch();
		int verdict;

		if (!scratch)
			return PASS;
		fill_tuple6(&scratch->packet, &key, ip);
		fill_marks(&scratch->marks, l4, end, is_udp);
		verdict = egress ? decide_at_egress(flow) : decide_at_tc(ctx, flow);
		if (verdict)
			return verdict;
		if (!egress) {
			flow = &scratch->flow;
			let_neighbour_be_seen(scratch, flow);
		} else if (!flow) {
			return PASS;
		}
	}
	by_stack = egress || !l3 || flow->delivery == BY_STACK || ip->hop_limit <= 1 ||
		   is_too_long(ctx, flow, length, offset - l3, l4, is_udp);
	return go_on(ctx, flow, l3, offset, protocol, length, by_stack, egress);
}

/* Whether an IP packet's first bytes promise that it has no options or extension headers. */
static __always_inline bool is_plain(const __u8 *ip)
{
	return ip[0] == 0x45 || (ip[0] >> 4 == 6 && !is_extension(ip[offsetof(struct ipv6hdr, nexthdr)]));
}

/*
 * Brings the headers into the linear part of the packet, where a driver or a sender left them elsewhere, before anything
 * looks at them: so all that does is verified once. False when there is no memory for it.
 */
static __always_inline bool make_headers_linear(struct __sk_buff *ctx, __u32 l3)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 length = l3 + HEADERS_LENGTH;

	if (data + l3 + PLAIN_HEADERS_LENGTH <= end && is_plain(data + l3))
		return true;
	if (length > ctx->len)
		length = ctx->len;
	return data + length <= end || !bpf_skb_pull_data(ctx, length);
}

static __always_inline int handle(struct __sk_buff *ctx, __u32 l3, bool egress)
{
	__u32 protocol = ctx->protocol;

	if (ctx->vlan_present)	/* handled at the VLAN's own device */
		return PASS;
	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
		return PASS;
	if (!make_headers_linear(ctx, l3))
		return PASS;
	return protocol == bpf_htons(ETH_P_IP) ? handle4(ctx, l3, egress) : handle6(ctx, l3, egress);
}

static __always_inline int tc_ingress(struct __sk_buff *ctx, __u32 l3)
{
	if (ctx->pkt_type != PACKET_HOST)
		return PASS;
	return handle(ctx, l3, false);
}

#endif
