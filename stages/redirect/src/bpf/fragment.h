/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fragments. Only the first of a datagram has the ports that a rule is found by. What is decided about it holds for
 * all: they are rewritten each (addresses; ports and L4 checksum in the first) and go to the same next hop, where the
 * receiver reassembles them. One that comes before the first is held, and sent on right behind it.
 *
 * A fragment that waits is copied into a cell, for a program cannot keep an sk_buff. The first fragment's sk_buff is
 * the vehicle then: it is sent as a clone, filled with the next held fragment, sent as a clone, and so on; the last
 * one goes out in it.
 *
 * CPUs may see fragments of one datagram at the same time. The cells of a datagram are a chain that starts at
 * `datagram.held`; a cell is added by compare-and-exchange, and whoever decides takes the whole chain by exchanging it
 * for DATAGRAM_DECIDED. So a fragment is either in the chain when it is taken, or finds that it has been decided.
 *
 * Everything is bounded. Cells are a ring: one that is used again while it still holds a fragment counts as evicted,
 * and its ticket tells whoever has it in a chain that it has gone. A datagram that is forgotten (least recently used
 * of 8192) leaves its cells to that fate.
 *
 * Events tell every fragment that was lost. Whose it was, only the first of its datagram can tell: then it is counted for
 * the rule, too.
 */
#ifndef TARN_REDIRECT_FRAGMENT_H
#define TARN_REDIRECT_FRAGMENT_H

/* Other CPUs' fragments of the same datagram may come between as often as this. */
#define MOST_ATTEMPTS 8

/* A fragment's place in the packet and in its datagram. */
struct fragment {
	__u32 l3;		/* offset of the IP header */
	__u32 l4;		/* offset of what follows the headers */
	__u32 length;		/* from the IP header on */
	__u32 held_count;	/* the first: of the others, how many came before and are held */
	bool is_first;
	bool has_options;	/* IPv4: a router's business */
	bool egress;
	bool by_stack;		/* decided: it does not leave by the flow's next hop */
};

/* Whether fragments with these addresses can be for a rule, or answers. */
static __noinline bool concerns_us(struct scratch *scratch)
{
	struct address_key *key = &scratch->address;
	struct address_use *use;

	key->family = scratch->packet.family;
	key->address = scratch->packet.source;
	use = bpf_map_lookup_elem(&addresses, key);
	if (use && use->leads_here)
		return true;
	key->address = scratch->packet.destination;
	use = bpf_map_lookup_elem(&addresses, key);
	if (use)
		return true;
	__builtin_memset(&key->address, 0, sizeof(key->address));
	if (!bpf_map_lookup_elem(&addresses, key))
		return false;
	return is_local(scratch, &scratch->packet.destination, scratch->packet.family);
}

static __always_inline void fill_datagram_key(struct scratch *scratch, __u32 identification)
{
	struct datagram_key *key = &scratch->datagram_key;

	key->source = scratch->packet.source;
	key->destination = scratch->packet.destination;
	key->identification = identification;
	key->protocol = scratch->packet.protocol;
	key->family = scratch->packet.family;
	key->padding = 0;
}

/*
 * The datagram of `scratch->datagram_key`, new if need be: one that is older than the stack would wait for its fragments
 * is another with the same identification.
 */
static __noinline struct datagram *get_datagram(struct scratch *scratch)
{
	struct datagram *datagram = bpf_map_lookup_elem(&datagrams, &scratch->datagram_key);
	__u64 now = bpf_jiffies64();

	if (datagram && now - datagram->since < datagram_jiffies)
		return datagram;
	__builtin_memset(&scratch->datagram, 0, sizeof(scratch->datagram));
	scratch->datagram.since = now;
	bpf_map_update_elem(&datagrams, &scratch->datagram_key, &scratch->datagram, datagram ? BPF_ANY : BPF_NOEXIST);
	return bpf_map_lookup_elem(&datagrams, &scratch->datagram_key);
}

/* The same length, 1 to CELL_LENGTH, in a form that the verifier of 6.1 sees the bounds of: it learns none from != 0. */
static __always_inline __u32 visibly_bounded(__u32 length)
{
	barrier_var(length);
	return ((length - 1) & (CELL_LENGTH - 1)) + 1;
}

/* Copies the packet into a cell. Returns its ticket, or 0 when it is too long for one. */
__noinline __u64 fill_cell(struct __sk_buff *ctx, __u32 l3, __u32 length)
{
	__u32 index;
	struct cell *cell;
	__u64 ticket;

	if (length > CELL_LENGTH) {
		count_event(fragment_too_long);
		return 0;
	}
	ticket = __sync_fetch_and_add(&last_ticket, 1) + 1;
	index = ticket % CELLS;
	cell = bpf_map_lookup_elem(&cells, &index);
	if (!cell)
		return 0;
	if (__sync_lock_test_and_set(&cell->ticket, 0))
		count_event(fragment_evicted);
	length = visibly_bounded(length);
	if (bpf_skb_load_bytes(ctx, l3, cell->packet, length))
		return 0;
	cell->length = length;
	return ticket;
}

/* Adds a filled cell to a datagram's chain; false when the datagram was decided about meanwhile. */
static __noinline bool hold(struct datagram *datagram, __u64 ticket)
{
	__u32 index = ticket % CELLS;
	struct cell *cell = bpf_map_lookup_elem(&cells, &index);

	if (!cell)
		return false;
	for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
		__u64 head = datagram->held;

		if (head == DATAGRAM_DECIDED)
			return false;
		cell->next = head;
		cell->ticket = ticket;
		if (__sync_val_compare_and_swap(&datagram->held, head, ticket) == head)
			return true;
	}
	return false;
}

static __always_inline __u32 header_length(const struct __sk_buff *ctx)
{
	return ctx->protocol == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* The first fragment's port and L4 checksum, at `l4`. Leaves the sum over the fragment without the address's change. */
__noinline int rewrite_first(struct __sk_buff *ctx, const struct flow *flow, __u32 l4, __u32 protocol)
{
	__u32 checksum = l4 + checksum_offset(protocol);
	__u16 there;

	if (!flow || !has_ports(protocol))
		return 0;
	bpf_skb_store_bytes(ctx, l4 + (flow->is_reply ? 0 : 2), &flow->port, sizeof(flow->port), 0);
	if (!bpf_skb_load_bytes(ctx, checksum, &there, sizeof(there)))
		replace_l4_checksum(ctx, checksum, flow, protocol == IPPROTO_UDP);
	return 0;
}

/* Any fragment's Ethernet and IP header. Returns 0, or PASS when they cannot be reached. */
__noinline int rewrite_fragment(struct __sk_buff *ctx, const struct flow *flow, __u32 l3, __u32 by_stack)
{
	void *data, *end, *ip;

	if (!flow)
		return PASS;
	if (l3 > ETHERNET_LENGTH || bpf_skb_pull_data(ctx, l3 + header_length(ctx)))
		return PASS;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + l3;
	if (data + ETHERNET_LENGTH > end || ip + sizeof(struct iphdr) > end)
		return PASS;
	if (!by_stack && l3)
		rewrite_ethernet(data, flow);
	if (ctx->protocol == bpf_htons(ETH_P_IP)) {
		rewrite_ipv4(ip, flow, by_stack);
		return 0;
	}
	if (ip + sizeof(struct ipv6hdr) > end)
		return PASS;
	rewrite_ipv6(ip, flow, by_stack);
	/* The sum over this fragment, where the device gave one. */
	bpf_csum_update(ctx, by_stack ? flow->address_difference :
					add_folded(flow->address_difference, HOP_LIMIT_DIFFERENCE));
	return 0;
}

/* Fills the vehicle with a held fragment. Returns its length, 0 when it was lost; `ticket` becomes the next one's. */
__noinline int load_cell(struct __sk_buff *ctx, __u64 *ticket, __u32 l3)
{
	__u32 index, length;
	struct cell *cell;
	__u64 mine;

	if (!ticket)
		return 0;
	mine = *ticket;
	*ticket = 0;
	index = mine % CELLS;
	cell = bpf_map_lookup_elem(&cells, &index);
	if (!cell || cell->ticket != mine)
		return 0;	/* used again meanwhile: so were those held before it */
	*ticket = cell->next;
	length = cell->length;
	/* Bounds one by one, or the compiler makes one comparison of them that 6.1's verifier takes no lower bound from. */
	if (length == 0 || length > CELL_LENGTH)
		return 0;
	length = visibly_bounded(length);
	if (bpf_skb_change_tail(ctx, l3 + length, 0))
		return 0;
	if (bpf_skb_store_bytes(ctx, l3, cell->packet, length, BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
		return 0;
	if (__sync_val_compare_and_swap(&cell->ticket, mine, 0) != mine)
		return 0;
	count_event(fragment_released);
	return length;
}

/*
 * Sends a copy of the packet the way of its flow; one that goes by the stack, or is not ours, back to where it came in,
 * marked, so that it is let pass there.
 */
__noinline int send_copy(struct __sk_buff *ctx, const struct flow *flow, __u32 by_stack)
{
	__u32 mark = ctx->mark;

	if (flow && !by_stack)
		return bpf_clone_redirect(ctx, flow->ifindex, 0);
	ctx->mark = REWRITTEN_MARK;
	bpf_clone_redirect(ctx, ctx->ifindex, BPF_F_INGRESS);
	ctx->mark = mark;
	return 0;
}

/* A chain of held fragments on its way out, behind the first of its datagram. */
struct chain {
	struct __sk_buff *vehicle;
	const struct flow *flow;	/* NULL: not ours */
	const struct fragment *first;
	__u64 ticket;			/* of the next one */
	int failed;			/* verdict for the vehicle when it does not hold the last one, or 0 */
};

/* Sends the vehicle's packet and fills it with the next of the chain. Returns whether there is no more to do. */
static long release_next(__u32 index, void *argument)
{
	struct chain *chain = argument;
	const struct fragment *first = chain->first;

	if (!chain->ticket || !first)
		return 1;
	send_copy(chain->vehicle, chain->flow, first->by_stack);
	if (!load_cell(chain->vehicle, &chain->ticket, first->l3)) {
		/* The copy was the last: the rest of the chain is lost. */
		if (chain->flow && first->held_count > index)
			count_lost(chain->flow->rule, first->held_count - index);
		chain->failed = TC_ACT_STOLEN;
	} else if (chain->flow && rewrite_fragment(chain->vehicle, chain->flow, first->l3, first->by_stack)) {
		chain->failed = TC_ACT_SHOT;
	}
	return chain->failed ? 1 : 0;
}

/*
 * Sends a decided first fragment (rewritten already) and the chain of those held behind it. Returns the verdict for
 * the vehicle, which holds the last of them.
 */
__noinline int release(struct __sk_buff *ctx, const struct flow *flow, __u64 ticket, const struct fragment *first)
{
	struct chain chain = { .vehicle = ctx, .flow = flow, .first = first, .ticket = ticket };

	if (!first)
		return PASS;
	bpf_loop(MOST_HELD, release_next, &chain, 0);
	if (chain.failed)
		return chain.failed;
	return flow ? deliver(flow, first->by_stack) : PASS;
}

/* The first fragment: finds the rule by its ports. 0 when there is one, with `datagram->flow` set, or the verdict. */
static __always_inline int decide_datagram(struct __sk_buff *ctx, struct scratch *scratch, struct datagram *datagram,
					    __u32 l4, bool egress)
{
	struct tuple *tuple = &scratch->packet;
	int verdict;

	if (!has_ports(tuple->protocol) || bpf_skb_load_bytes(ctx, l4, &tuple->ports, sizeof(tuple->ports)))
		return PASS;
	__builtin_memset(&scratch->marks, 0, sizeof(scratch->marks));	/* TCP does not come in fragments */
	verdict = decide_found(ctx, egress);
	if (!verdict)
		datagram->flow = scratch->flow;
	return verdict;
}

/* There is no room for a fragment. Returns the verdict. */
static __always_inline int lose(struct datagram *datagram)
{
	__sync_fetch_and_add(&datagram->lost_count, 1);
	return TC_ACT_SHOT;
}

/* Holds a fragment whose datagram is not decided about yet. Returns the verdict, or 0 when it has been decided. */
static __always_inline int hold_fragment(struct __sk_buff *ctx, struct datagram *datagram, const struct fragment *fragment)
{
	__u64 ticket;

	if (datagram->held_count >= MOST_HELD) {
		count_event(fragment_too_many);
		return lose(datagram);
	}
	ticket = fill_cell(ctx, fragment->l3, fragment->length);
	if (!ticket)
		return lose(datagram);
	if (!hold(datagram, ticket))
		return 0;
	__sync_fetch_and_add(&datagram->held_count, 1);
	count_event(fragment_held);
	return TC_ACT_STOLEN;
}

/*
 * One fragment, its addresses and protocol in `scratch->packet`. Answers that go by the stack are left as they are at
 * ingress, like whole ones.
 */
__noinline int handle_fragment(struct __sk_buff *ctx, struct fragment *fragment)
{
	struct scratch *scratch = get_scratch();
	struct datagram *datagram;
	bool by_stack, egress;
	struct flow *flow;
	__u32 protocol;
	__u64 held = 0;
	int first = PASS;

	if (!scratch || !fragment)
		return PASS;
	protocol = scratch->packet.protocol;
	egress = fragment->egress;
	if (!egress && ctx->mark == REWRITTEN_MARK) {
		ctx->mark = 0;
		return PASS;
	}
	if (!has_ports(protocol) || !concerns_us(scratch))
		return PASS;
	datagram = get_datagram(scratch);
	if (!datagram)
		return PASS;
	if (fragment->is_first) {
		first = decide_datagram(ctx, scratch, datagram, fragment->l4, egress);
		datagram->is_ours = !first;
		held = __sync_lock_test_and_set(&datagram->held, DATAGRAM_DECIDED);
		if (held == DATAGRAM_DECIDED)
			held = 0;
		fragment->held_count = datagram->held_count;
	} else if (__sync_fetch_and_add(&datagram->held, 0) != DATAGRAM_DECIDED) {	/* ordered before reading `flow` */
		int verdict;

		if (egress)	/* our own stack sends in order: nothing is known about this one */
			return PASS;
		verdict = hold_fragment(ctx, datagram, fragment);
		if (verdict)
			return verdict;
	}
	flow = &datagram->flow;
	by_stack = egress || !fragment->l3 || flow->delivery == BY_STACK || fragment->has_options ||
		   fragment->length > flow->longest;
	fragment->by_stack = by_stack;
	if (fragment->is_first && datagram->is_ours)
		count_lost(flow->rule, __sync_lock_test_and_set(&datagram->lost_count, 0));
	if (!datagram->is_ours || (flow->is_reply && by_stack && !egress)) {
		fragment->by_stack = true;
		if (held)
			return release(ctx, NULL, held, fragment);
		return first == TC_ACT_SHOT ? TC_ACT_SHOT : PASS;	/* without the first, the others are nothing */
	}
	if (!flow->is_reply)
		count_packet(flow->rule, fragment->length);
	if (fragment->is_first)
		rewrite_first(ctx, flow, fragment->l4, protocol);
	if (rewrite_fragment(ctx, flow, fragment->l3, by_stack))
		return TC_ACT_SHOT;
	if (egress)
		return PASS;
	return held ? release(ctx, flow, held, fragment) : deliver(flow, by_stack);
}

__noinline int fragment4(struct __sk_buff *ctx, __u32 l3, __u32 egress)
{
	struct scratch *scratch = get_scratch();
	struct fragment fragment = { .l3 = l3, .egress = egress };
	struct tuple *tuple;
	struct iphdr ip;

	if (!scratch || bpf_skb_load_bytes(ctx, l3, &ip, sizeof(ip)) || ip.ihl < 5)
		return PASS;
	fragment.length = bpf_ntohs(ip.tot_len);
	if (l3 + fragment.length > ctx->len || fragment.length <= ip.ihl * 4)
		return PASS;
	tuple = &scratch->packet;
	__builtin_memset(tuple, 0, sizeof(*tuple));
	tuple->family = AF_INET;
	tuple->protocol = ip.protocol;
	tuple->traffic_class = ip.tos;
	tuple->source.word[0] = ip.saddr;
	tuple->destination.word[0] = ip.daddr;
	fill_datagram_key(scratch, ip.id);
	fragment.l4 = l3 + ip.ihl * 4;
	fragment.has_options = ip.ihl > 5;
	fragment.is_first = !(ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET));
	return handle_fragment(ctx, &fragment);
}

/*
 * `header` is the offset of the fragment header from the IPv6 header, `l4` of what follows all headers, in the packet.
 * The transport protocol is in the scratch room: with destination options behind the fragment header, it is not the one
 * that all fragments name.
 */
__noinline int fragment6(struct __sk_buff *ctx, __u32 l3, __u32 header, __u32 l4, __u32 egress)
{
	struct scratch *scratch = get_scratch();
	struct fragment fragment = { .l3 = l3, .l4 = l4, .egress = egress };
	struct frag_hdr shared;
	struct tuple *tuple;
	struct ipv6hdr *ip;
	__u8 protocol;

	if (!scratch)
		return PASS;
	ip = &scratch->quoted6;
	if (bpf_skb_load_bytes(ctx, l3, ip, sizeof(*ip)) || bpf_skb_load_bytes(ctx, l3 + header, &shared, sizeof(shared)))
		return PASS;
	fragment.length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (l3 + fragment.length > ctx->len || l3 + fragment.length <= l4)
		return PASS;
	tuple = &scratch->packet;
	protocol = tuple->protocol;
	tuple->family = AF_INET6;
	tuple->traffic_class = *(__u32 *)ip & bpf_htonl(IPV6_FLOWINFO);
	tuple->protocol = shared.nexthdr;
	copy_address(tuple->source.word, ip->saddr.in6_u.u6_addr32);
	copy_address(tuple->destination.word, ip->daddr.in6_u.u6_addr32);
	fill_datagram_key(scratch, shared.identification);
	tuple->protocol = protocol;
	fragment.is_first = !(shared.frag_off & bpf_htons(0xfff8));
	return handle_fragment(ctx, &fragment);
}

#endif
