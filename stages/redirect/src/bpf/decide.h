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

static __always_inline void fill_key4(struct flow_key4 *key, const struct tuple *tuple)
{
	key->source = tuple->source.word[0];
	key->destination = tuple->destination.word[0];
	key->ports = tuple->ports;
	key->protocol = tuple->protocol;
}

static __always_inline void fill_key6(struct flow_key6 *key, const struct tuple *tuple)
{
	copy_address(key->source, tuple->source.word);
	copy_address(key->destination, tuple->destination.word);
	key->ports = tuple->ports;
	key->protocol = tuple->protocol;
}

static __noinline struct flow *find_flow(struct scratch *scratch, const struct tuple *tuple)
{
	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		return bpf_map_lookup_elem(&flows4, &key);
	}
	fill_key6(&scratch->key6, tuple);
	return bpf_map_lookup_elem(&flows6, &scratch->key6);
}

static __noinline int store_flow(struct scratch *scratch, const struct tuple *tuple, const struct flow *flow)
{
	int error;

	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		error = bpf_map_update_elem(&flows4, &key, flow, BPF_ANY);
	} else {
		fill_key6(&scratch->key6, tuple);
		error = bpf_map_update_elem(&flows6, &scratch->key6, flow, BPF_ANY);
	}
	if (error)
		count_event(flow_not_stored);
	return error;
}

static __noinline int forget_flow(struct scratch *scratch, const struct tuple *tuple)
{
	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		return bpf_map_delete_elem(&flows4, &key);
	}
	fill_key6(&scratch->key6, tuple);
	return bpf_map_delete_elem(&flows6, &scratch->key6);
}

static __always_inline void reverse(const struct tuple *tuple, struct tuple *reversed)
{
	reversed->source = tuple->destination;
	reversed->destination = tuple->source;
	reversed->ports = tuple->ports >> 16 | tuple->ports << 16;
	reversed->traffic_class = tuple->traffic_class;
	reversed->protocol = tuple->protocol;
	reversed->family = tuple->family;
}

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

/* Is the destination an address of this host? */
static __noinline bool is_local(struct scratch *scratch, const struct tuple *tuple)
{
	struct local_key *key = &scratch->local;

	key->prefix_length = FAMILY_BITS + (tuple->family == AF_INET ? 32 : 128);
	key->family = tuple->family;
	key->address = tuple->destination;
	return bpf_map_lookup_elem(&locals, key);
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
	return target && is_local(scratch, tuple) ? target : NULL;
}

/* Finds the next hop of `onward`, the packet as rewritten. What cannot be had is left to the stack. */
static __noinline int find_next_hop(void *ctx, struct scratch *scratch, __u32 ifindex)
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
	return BPF_FIB_LKUP_RET_SUCCESS;
}

/* Fills the differences that the new address and port make. */
static __always_inline void fill_differences(struct flow *flow, const struct address *old, __u16 old_port)
{
	flow->address_difference = address_difference(old, &flow->address);
	flow->port_difference = word_difference(old_port, flow->port);
	flow->header_difference = add_folded(flow->address_difference, TTL_DIFFERENCE);
}

/*
 * Opens the way back, so that the answer leaves from the address the client spoke to. Its next hop is looked up
 * when the first answer comes, by the device it comes from.
 */
static __noinline int open_reply(struct scratch *scratch)
{
	const struct tuple *request = &scratch->packet;
	const struct flow *to = &scratch->flow;
	struct tuple *answer = &scratch->other;
	struct flow *known;
	struct flow reply = {
		.is_reply = 1,
		.rule = to->rule,
		.address = request->destination,
		.port = destination_port(request->ports),
	};

	reverse(request, answer);
	answer->source = to->address;
	answer->ports = join_ports(to->port, source_port(request->ports));
	known = find_flow(scratch, answer);
	if (known && known->rule == to->rule && known->port == reply.port &&
	    same_address(&known->address, &reply.address))
		return 0;
	fill_differences(&reply, &to->address, to->port);
	return store_flow(scratch, answer, &reply);
}

/*
 * A request that no rule wants, to a port that rules lead to, or did: its answers stay as they are, though the client may
 * have come here by a rule before.
 */
static __noinline int close_reply(struct scratch *scratch)
{
	struct tuple *other = &scratch->other;
	struct flow *reply;

	reverse(&scratch->packet, other);
	reply = find_flow(scratch, other);
	if (!reply)
		return 0;
	scratch->flow.address = reply->address;
	scratch->flow.port = reply->port;
	forget_flow(scratch, other);
	*other = scratch->packet;
	other->destination = scratch->flow.address;
	other->ports = join_ports(source_port(other->ports), scratch->flow.port);
	return forget_flow(scratch, other);
}

/*
 * Decides about the request in `scratch->packet` and fills `scratch->flow`. Returns 0, or PASS when no rule wants it.
 *
 * A client may use one port of its own for the address that is redirected and for the target itself: the answers
 * to both look alike. So the request that came last decides what happens to the answers.
 */
static __noinline int decide_request(void *ctx, struct scratch *scratch, __u32 ifindex)
{
	const struct tuple *request = &scratch->packet;
	struct flow *flow = &scratch->flow;
	struct target *target;

	/* Before looking: had the rules changed after it, the flow would pass for decided under the new ones. */
	flow->generation = generation;
	barrier();
	target = find_target(scratch);
	if (!target) {
		if (has_port(target_ports, destination_port(request->ports)))
			close_reply(scratch);
		return PASS;
	}
	flow->is_reply = 0;
	flow->rule = target->rule;
	flow->address = target->address;
	flow->port = target->port;
	open_reply(scratch);
	scratch->other = *request;
	scratch->other.destination = flow->address;
	scratch->other.ports = join_ports(source_port(request->ports), flow->port);
	find_next_hop(ctx, scratch, ifindex);
	fill_differences(flow, &request->destination, destination_port(request->ports));
	store_flow(scratch, request, flow);
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
	return store_flow(scratch, &scratch->packet, flow);
}

/* Decides about a packet that no flow is `known` for, or whose next hop is old. */
static __always_inline int decide(void *ctx, struct scratch *scratch, __u32 ifindex, const struct flow *known)
{
	if (!known || !known->is_reply)
		return decide_request(ctx, scratch, ifindex);
	scratch->flow = *known;
	refresh_reply(ctx, scratch, ifindex);
	return 0;
}

/* Whether what is stored still holds: answers do not depend on the rules of the moment. */
static __always_inline bool is_fresh(const struct flow *flow)
{
	return (flow->is_reply || flow->generation == generation) && (__s64)(flow->refresh_at - bpf_jiffies64()) > 0;
}

/* Functions that are verified once for themselves, whatever calls them; the packet is in the scratch room. */
__noinline int decide_at_tc(struct __sk_buff *ctx, const struct flow *known)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return PASS;
	scratch->mark = ctx->mark;
	return decide(ctx, scratch, ctx->ingress_ifindex, known);
}

__noinline int decide_at_xdp(struct xdp_md *ctx, const struct flow *known)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return PASS;
	if (known && known->delivery == BY_EGRESS)	/* the tc program lets the neighbour table see one packet */
		return PASS;
	scratch->mark = 0;
	return decide(ctx, scratch, ctx->ingress_ifindex, known);
}

#endif
