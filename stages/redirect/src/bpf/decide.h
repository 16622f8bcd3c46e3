/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The first packet of a flow, and the first after a change: which rule, where to, by which next hop. What is found
 * goes into the flow tables, so that the packets that follow cost one lookup.
 */
#ifndef TARN_REDIRECT_DECIDE_H
#define TARN_REDIRECT_DECIDE_H

/* The time to live falls by one: the first byte of a 16-bit word, so ~0x0100 = 0xfeff is added to the sum. */
#define TTL_DIFFERENCE bpf_htons(0xfeff)

/* A length every link can carry, so that bpf_fib_lookup accepts it and tells the route's own MTU. */
#define SHORT_PACKET 20

/* The flag and field of 6.10 that bpf_fib_lookup takes a mark by. */
#define FIB_LOOKUP_MARK (1U << 5)

struct bpf_fib_lookup___mark {
	__u32 mark;
} __attribute__((preserve_access_index));

/*
 * The kernel's answer about the route of `tuple`, arriving by `ifindex`; `scratch->fib` holds the next hop. As for a packet
 * that the stack gets, the routing rules see the traffic class, and the mark that a tc program before us may have set.
 */
static __noinline int look_route_up(void *ctx, struct scratch *scratch, const struct tuple *tuple, __u32 ifindex)
{
	struct bpf_fib_lookup *fib = &scratch->fib;
	__u32 flags = 0;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = tuple->family;
	fib->l4_protocol = tuple->protocol;
	fib->sport = source_port(tuple->ports);
	fib->dport = destination_port(tuple->ports);
	fib->tot_len = SHORT_PACKET;
	fib->ifindex = ifindex;
	if (scratch->mark && bpf_core_field_exists(struct bpf_fib_lookup___mark, mark)) {
		flags |= FIB_LOOKUP_MARK;
		fib->mark = scratch->mark;
	}
	if (tuple->family == AF_INET) {
		fib->tos = tuple->traffic_class;
		fib->ipv4_src = tuple->source.word[0];
		fib->ipv4_dst = tuple->destination.word[0];
	} else {
		fib->flowinfo = tuple->traffic_class;
		copy_address(fib->ipv6_src, tuple->source.word);
		copy_address(fib->ipv6_dst, tuple->destination.word);
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), flags);
}

/* The target of the rule for this source, or NULL. */
static __noinline struct target *target_for_source(struct scratch *scratch, const struct service_key *service,
						   struct service *found)
{
	struct source_key *key = &scratch->source;
	struct target *target;

	if (found->sources) {
		key->prefix_length = SERVICE_BITS + (service->family == AF_INET ? 32 : 128);
		key->service = *service;
		key->address = scratch->packet.source;
		target = bpf_map_lookup_elem(&sources, key);
		if (target)
			return target;
	}
	return found->target.rule == NO_RULE ? NULL : &found->target;
}

/*
 * Where does this request lead? The address as such goes before `any address of this host`, the longest source prefix
 * before shorter ones. NULL when no rule wants it.
 */
static __noinline struct target *find_target(struct scratch *scratch)
{
	const struct tuple *tuple = &scratch->packet;
	struct service_key key = {
		.address = tuple->destination,
		.port = destination_port(tuple->ports),
		.protocol = tuple->protocol,
		.family = tuple->family,
	};
	struct service *service;
	struct target *target;

	service = bpf_map_lookup_elem(&services, &key);
	if (service) {
		target = target_for_source(scratch, &key, service);
		if (target)
			return target;
	}
	__builtin_memset(&key.address, 0, sizeof(key.address));
	service = bpf_map_lookup_elem(&services, &key);
	if (!service)
		return NULL;
	target = target_for_source(scratch, &key, service);
	return target && is_local(scratch, &tuple->destination, tuple->family) ? target : NULL;
}

/*
 * Is the source one that no host sends from, or this host's own? The stack would drop it (`martian source`), but for
 * broadcast addresses of its networks where `rp_filter` is 0, and its own IPv6 addresses: it does not look for those. Of
 * its own IPv4 addresses it decides itself (`accept_local`).
 */
__noinline int is_impossible_source(void)
{
	struct scratch *scratch = get_scratch();
	const struct tuple *packet;
	const __u32 *word;
	__u32 first;

	if (!scratch)
		return true;
	packet = &scratch->packet;
	word = packet->source.word;
	first = bpf_ntohl(word[0]);
	if (packet->family == AF_INET) {
		if (!first || first >> 24 == 127 || first >> 28 == 0xe || first == 0xffffffff)	/* loopback, multicast, ... */
			return true;
		return find_local(scratch, &packet->source, AF_INET) == LOCAL_BROADCAST;
	}
	if (first >> 24 == 0xff)	/* multicast */
		return true;
	if (!word[0] && !word[1] && !word[2] && bpf_ntohl(word[3]) <= 1)	/* `::` and loopback */
		return true;
	return is_local(scratch, &packet->source, AF_INET6);
}

/*
 * Does the stack have to judge the source? It refuses one that is an address of its own, and where `rp_filter` says so, one
 * that it would not answer, or would by another device. It looks the way back up for the packet as rewritten, as if that had
 * come in by the device it is about to leave by (fib_validate_source), so routing rules may say otherwise than for the
 * packet that came. Its judgement may be milder than what is seen here: of a route with several next hops this sees one.
 * So what is doubtful goes there rewritten, and not straight on. IPv6 has no such filter.
 */
static __noinline bool is_doubtful_source(void *ctx, struct scratch *scratch, __u32 ifindex)
{
	const struct bpf_fib_lookup *fib = &scratch->fib;
	const struct flow *flow = &scratch->flow;
	struct tuple *back = &scratch->other;
	struct ingress *ingress;
	int answer;

	if (scratch->packet.family != AF_INET)
		return false;
	reverse(&scratch->packet, back);
	if (!flow->is_reply) {
		back->source = flow->address;
		back->ports = join_ports(flow->port, source_port(scratch->packet.ports));
	}
	scratch->mark = 0;	/* the stack looks without */
	answer = look_route_up(ctx, scratch, back, flow->ifindex);
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
		return true;
	ingress = bpf_map_lookup_elem(&ingresses, &ifindex);
	if (!ingress || ingress->reverse_path != REVERSE_PATH_STRICT)
		return false;
	return fib->ifindex != ingress->device;
}

/* Finds the next hop of `scratch->other`, the packet as rewritten. What cannot be had is left to the stack. */
static __noinline int look_next_hop_up(void *ctx, struct scratch *scratch, __u32 ifindex)
{
	const struct bpf_fib_lookup *fib = &scratch->fib;
	struct flow *flow = &scratch->flow;
	struct exit *exit;
	__u32 device;
	int answer;

	flow->delivery = BY_STACK;
	flow->by_xdp = 0;
	flow->refresh_at = bpf_jiffies64() + refresh_jiffies;
	answer = look_route_up(ctx, scratch, &scratch->other, ifindex);
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)	/* the stack asks for it now: soon there is one */
		flow->refresh_at = bpf_jiffies64() + 1;
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return answer;
	device = fib->ifindex;
	exit = bpf_map_lookup_elem(&exits, &device);
	if (!exit)
		return BPF_FIB_LKUP_RET_SUCCESS;
	flow->ifindex = device;
	flow->delivery = exit->delivery;
	flow->by_xdp = exit->by_xdp;
	/*
	 * Also where the packet is handed to the peer, which would take a longer one: what it answers comes by the link, and
	 * our end drops without a word what is longer than that. So the sender learns from the stack how long it may be.
	 */
	flow->longest = fib->mtu_result;
	__builtin_memcpy(flow->ethernet, fib->dmac, 6);
	__builtin_memcpy(flow->ethernet + 6, fib->smac, 6);
	/* `fib` is used again, for the way back. */
	scratch->hop.nh_family = fib->family;
	copy_address(scratch->hop.ipv6_nh, fib->ipv6_dst);	/* of IPv4, the first word */
	scratch->has_hop = true;
	return BPF_FIB_LKUP_RET_SUCCESS;
}

/* The same; and what is not to go on without the stack's judgement is left to it, too. `scratch->other` is used up. */
static __always_inline void find_next_hop(void *ctx, struct scratch *scratch, __u32 ifindex)
{
	struct flow *flow = &scratch->flow;

	flow->ingress = ifindex;
	look_next_hop_up(ctx, scratch, ifindex);
	if (flow->delivery == BY_STACK || !is_doubtful_source(ctx, scratch, ifindex))
		return;
	flow->delivery = BY_STACK;
	flow->by_xdp = 0;
	count_event(source_doubted);
}

/* Fills the differences that the new address and port make. */
static __always_inline void fill_differences(struct flow *flow, const struct address *old, __u16 old_port)
{
	flow->address_difference = address_difference(old, &flow->address);
	flow->port_difference = word_difference(old_port, flow->port);
	flow->header_difference = add_folded(flow->address_difference, TTL_DIFFERENCE);
}

static __always_inline struct flow *begin_reply(struct scratch *scratch)
{
	struct flow *reply = &scratch->reply;

	__builtin_memset(reply, 0, sizeof(*reply));
	reply->is_reply = 1;
	return reply;
}

/*
 * Opens the way back, so that the answer leaves from the address the client spoke to. Its next hop is looked up
 * when the first answer comes, by the device it comes from.
 */
__noinline int open_reply(void)
{
	struct scratch *scratch = get_scratch();
	const struct tuple *request;
	struct flow *known, *reply;
	const struct flow *to;
	struct tuple *answer;

	if (!scratch)
		return PASS;
	reply = begin_reply(scratch);
	request = &scratch->packet;
	to = &scratch->flow;
	answer = &scratch->other;
	reply->stage = is_established(to) ? ESTABLISHED : WATCHED;
	reply->rule = to->rule;
	reply->address = request->destination;
	reply->port = destination_port(request->ports);
	reverse(request, answer);
	answer->source = to->address;
	answer->ports = join_ports(to->port, source_port(request->ports));
	known = find_flow(scratch, answer);
	if (known && known->rule == to->rule && known->port == reply->port &&
	    same_address(&known->address, &reply->address))
		return 0;
	fill_differences(reply, &to->address, to->port);
	if (known && is_established(known) != is_established(reply)) {
		forget_flow(answer);
		known = NULL;
	}
	return store_flow(BACK, !known);
}

/*
 * A request that no rule wants, to a port that rules lead to, or did: its answers stay as they are, though the client may
 * have come here by a rule before.
 */
static __always_inline int close_reply(struct scratch *scratch)
{
	struct tuple *other = &scratch->other;
	struct flow *reply;

	reverse(&scratch->packet, other);
	reply = find_flow(scratch, other);
	if (!reply || reply->rule == NO_RULE)
		return 0;
	scratch->flow.address = reply->address;
	scratch->flow.port = reply->port;
	forget_flow(other);
	*other = scratch->packet;
	other->destination = scratch->flow.address;
	other->ports = join_ports(source_port(other->ports), scratch->flow.port);
	return forget_flow(other);
}

/* For ever, as far as anybody can count. */
#define NEVER (1ULL << 62)

/*
 * Remembers that answers of a target's to this client stay as they are, when those without a flow are dropped: a reply
 * that changes the target's address to itself, and leaves it to the stack.
 */
static __always_inline int let_answers_pass(struct scratch *scratch)
{
	struct tuple *answer = &scratch->other;
	struct flow *reply;

	reverse(&scratch->packet, answer);
	if (find_flow(scratch, answer))
		return 0;
	reply = begin_reply(scratch);
	reply->rule = NO_RULE;
	reply->refresh_at = NEVER;
	reply->address = scratch->packet.destination;
	reply->port = destination_port(scratch->packet.ports);
	return store_flow(BACK, true);
}

/* The verdict about what may be an answer, but has no flow. */
static __always_inline int judge_answer(struct scratch *scratch)
{
	return is_lost_answer(scratch) ? LOST_ANSWER : PASS;
}

/* The verdict about the packet in the scratch room, which no rule wants. */
__noinline int judge_other(void)
{
	struct scratch *scratch = get_scratch();
	const struct tuple *packet;

	if (!scratch)
		return PASS;
	packet = &scratch->packet;
	if (has_port(target_ports, destination_port(packet->ports))) {
		close_reply(scratch);
		if (is_crowded(packet) && is_target(packet, &packet->destination, destination_port(packet->ports)))
			let_answers_pass(scratch);
	}
	return has_port(target_ports, source_port(packet->ports)) ? judge_answer(scratch) : PASS;
}

/*
 * Decides about the request in `scratch->packet` and fills `scratch->flow`. Returns 0, or the verdict when no rule wants
 * it. `known` says how far the flow has come, if there is one.
 *
 * A client may use one port of its own for the address that is redirected and for the target itself: the answers
 * to both look alike. So the request that came last decides what happens to the answers.
 */
static __noinline int decide_request(void *ctx, struct scratch *scratch, __u32 ifindex, const struct flow *known)
{
	const struct tuple *request = &scratch->packet;
	struct flow *flow = &scratch->flow;
	__u8 stage = known ? known->stage : OPENED;
	struct target *target;

	/* Before looking: had the rules changed after it, the flow would pass for decided under the new ones. */
	flow->generation = generation;
	barrier();
	target = find_target(scratch);
	if (!target)
		return judge_other();
	if (is_impossible_source())
		return REFUSED_SOURCE;
	flow->is_reply = 0;
	flow->stage = stage;
	flow->rule = target->rule;
	flow->address = target->address;
	flow->port = target->port;
	open_reply();
	scratch->other = *request;
	scratch->other.destination = flow->address;
	scratch->other.ports = join_ports(source_port(request->ports), flow->port);
	find_next_hop(ctx, scratch, ifindex);
	fill_differences(flow, &request->destination, destination_port(request->ports));
	store_flow(THIS_WAY, !known);
	count_event(flow_opened);
	return 0;
}

/* Looks the next hop of an answer up again; `scratch->flow` is a copy of what is known about it. */
static __noinline int refresh_reply(void *ctx, struct scratch *scratch, __u32 ifindex)
{
	struct flow *flow = &scratch->flow;

	scratch->other = scratch->packet;
	scratch->other.source = flow->address;
	scratch->other.ports = join_ports(flow->port, destination_port(scratch->packet.ports));
	find_next_hop(ctx, scratch, ifindex);
	return store_flow(THIS_WAY, false);
}

/* Decides about a packet that no flow is `known` for, or whose next hop is old. */
static __always_inline int decide(void *ctx, struct scratch *scratch, __u32 ifindex, const struct flow *known)
{
	if (!known || !known->is_reply)
		return decide_request(ctx, scratch, ifindex, known);
	scratch->flow = *known;
	refresh_reply(ctx, scratch, ifindex);
	return 0;
}

/* Whether what is stored holds for packets of this device: only a strict `rp_filter` makes a difference between them. */
static __always_inline bool is_of_device(const struct flow *flow, __u32 ifindex)
{
	return !is_strict || flow->ingress == (__u16)ifindex || !flow->ingress;
}

/* Whether what is stored still holds: answers do not depend on the rules of the moment. */
static __always_inline bool is_fresh(const struct flow *flow, __u32 ifindex)
{
	return (flow->is_reply || flow->generation == generation) && (__s64)(flow->refresh_at - bpf_jiffies64()) > 0 &&
	       is_of_device(flow, ifindex);
}

/* Whether nothing has to be looked at but what is stored. */
static __always_inline bool is_settled(const struct flow *flow, __u32 ifindex)
{
	return is_fresh(flow, ifindex) && flow->stage != WATCHED;
}

/* Counts a drop: at tc alone, for what XDP would drop it leaves to tc. */
static __always_inline int counted(int verdict)
{
	if (verdict == LOST_ANSWER)
		count_event(answer_dropped);
	else if (verdict == REFUSED_SOURCE)
		count_event(source_refused);
	else
		return verdict;
	return TC_ACT_SHOT;
}

/* Functions that are verified once for themselves, whatever calls them; the packet is in the scratch room. */
__noinline int decide_at_tc(struct __sk_buff *ctx, struct flow *known)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return PASS;
	scratch->mark = ctx->mark;
	scratch->has_hop = false;
	if (known && known->stage == WATCHED) {
		note_packet(scratch, known);
		if (is_fresh(&scratch->flow, ctx->ingress_ifindex))
			return 0;
		known = &scratch->flow;
	}
	return counted(decide(ctx, scratch, ctx->ingress_ifindex, known));
}

/* As the packet leaves: 0 when it is an answer to be restored by `known`, or the verdict. */
__noinline int decide_at_egress(struct flow *known)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return PASS;
	if (!known)
		return counted(judge_answer(scratch));
	if (!known->is_reply)
		return PASS;
	if (known->stage == WATCHED)
		note_answer(known);
	return 0;
}

__noinline int decide_at_xdp(struct xdp_md *ctx, const struct flow *known)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return PASS;
	/* The tc program lets the neighbour table see one packet, and sees flows become established. */
	if (known && (known->delivery == BY_EGRESS || known->stage == WATCHED))
		return PASS;
	scratch->mark = 0;
	return decide(ctx, scratch, ctx->ingress_ifindex, known);
}

/* The same for a packet whose flow is not looked up yet; what is decided is in `scratch->flow`. */
__noinline int decide_found(struct __sk_buff *ctx, __u32 egress)
{
	struct scratch *scratch = get_scratch();
	struct flow *flow;
	int verdict = 0;

	if (!scratch)
		return PASS;
	flow = find_flow(scratch, &scratch->packet);
	if (egress) {
		verdict = decide_at_egress(flow);
	} else if (!flow || !is_settled(flow, ctx->ingress_ifindex)) {
		return decide_at_tc(ctx, flow);
	}
	if (verdict)
		return verdict;
	if (flow)
		scratch->flow = *flow;
	return flow ? 0 : PASS;
}

#endif
