/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The flow tables. A flow begins in a table that it shares with all that nobody has answered yet, and which a flood of
 * forged packets can turn over as fast as it likes. It moves to the table of established flows of its protocol when the
 * client has shown that it gets its answers: when it sends again after the first answer, and over TCP acknowledges what
 * the server has sent. So whoever forges addresses cannot push an established connection out, however long it is idle;
 * over UDP, which has nothing to acknowledge, it takes an answer of the server's between two forged packets.
 *
 * Tables are least-recently-used ones, so the kernel makes room without a word. How many entries there are is counted
 * here: in a table that is full, what comes in pushes another out.
 *
 * Functions that are not static are verified once, whatever calls them: there are six tables, and the verifier follows a
 * flow from each of them by itself.
 */
#ifndef TARN_REDIRECT_FLOWS_H
#define TARN_REDIRECT_FLOWS_H

#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_FLAGS_OFFSET 13

/* What a client may acknowledge beyond the first byte of what the server was seen to send: a window without scaling. */
#define MOST_ACKNOWLEDGED 0x10000

static __always_inline bool is_established(const struct flow *flow)
{
	return flow->stage == ESTABLISHED;
}

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

/*
 * Established flows first: there are fewer surprises for those who wait longest. The barrier keeps the compiler from
 * making one call of two, whose table the verifier would not know: it turns a lookup in a known table into fewer
 * instructions.
 */
static __always_inline struct flow *find_flow4(const struct flow_key4 *key, bool is_udp)
{
	struct flow *flow;

	if (is_udp) {
		flow = bpf_map_lookup_elem(&udp4, key);
		barrier();
	} else {
		flow = bpf_map_lookup_elem(&tcp4, key);
	}
	return flow ? flow : bpf_map_lookup_elem(&flows4, key);
}

static __always_inline struct flow *find_flow6(const struct flow_key6 *key, bool is_udp)
{
	struct flow *flow;

	if (is_udp) {
		flow = bpf_map_lookup_elem(&udp6, key);
		barrier();
	} else {
		flow = bpf_map_lookup_elem(&tcp6, key);
	}
	return flow ? flow : bpf_map_lookup_elem(&flows6, key);
}

static __noinline struct flow *find_flow(struct scratch *scratch, const struct tuple *tuple)
{
	bool is_udp = tuple->protocol == IPPROTO_UDP;

	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		return find_flow4(&key, is_udp);
	}
	fill_key6(&scratch->key6, tuple);
	return find_flow6(&scratch->key6, is_udp);
}

/* Copies what is known of the flow to `scratch->flow`, for packets that come too seldom to save the copy. 0, or PASS. */
__noinline int load_flow(const struct tuple *tuple)
{
	struct scratch *scratch = get_scratch();
	const struct flow *flow;

	if (!scratch || !tuple)
		return PASS;
	flow = find_flow(scratch, tuple);
	if (!flow)
		return PASS;
	scratch->flow = *flow;
	return 0;
}

/* Counts a new entry in a table of so many. A flow counts by its requests' entry. */
static __always_inline void note_stored(__u64 *entries, __u64 most, const struct flow *flow)
{
	if (__sync_fetch_and_add(entries, 1) < most)
		return;
	__sync_fetch_and_add(entries, -1);
	if (flow->is_reply)
		return;
	if (is_established(flow))
		count_event(established_pushed_out);
	else
		count_event(flow_pushed_out);
}

static __always_inline void note_forgotten(__u64 *entries)
{
	if (*entries)	/* not exact: a table that was found full may have had room */
		__sync_fetch_and_add(entries, -1);
}

/* Counts a new entry in a table of so many, and when half of it was written anew. */
static __always_inline void note_new(__u64 *entries, struct turnover *turnover, __u64 most, const struct flow *flow)
{
	__u64 half = most / 2;

	note_stored(entries, most, flow);
	if (half && (__sync_fetch_and_add(&turnover->written, 1) + 1) % half == 0) {
		turnover->half_before = turnover->last_half;
		turnover->last_half = bpf_jiffies64();
	}
}

/* Whether half of a table, or more, was written anew within the time that an answer takes. */
static __always_inline bool is_turning(const struct turnover *turnover)
{
	__u64 since = turnover->half_before;

	return since && bpf_jiffies64() - since < answer_jiffies;
}

/*
 * Whether flows may have been pushed out whose answers are still to come. That a table is full says nothing: each is, sooner
 * or later, and its oldest entries are of nobody any more.
 */
__noinline int is_crowded(const struct tuple *tuple)
{
	const struct rooms *rooms;

	if (!tuple)
		return false;
	rooms = tuple->family == AF_INET ? &rooms4 : &rooms6;
	if (is_turning(&rooms->opening_turnover))
		return true;
	return is_turning(tuple->protocol == IPPROTO_UDP ? &rooms->udp_turnover : &rooms->tcp_turnover);
}

static __always_inline int store_flow4(const struct flow_key4 *key, const struct flow *flow, bool is_new)
{
	if (!is_established(flow)) {
		if (is_new)
			note_new(&rooms4.opening, &rooms4.opening_turnover, opening_flows, flow);
		return bpf_map_update_elem(&flows4, key, flow, BPF_ANY);
	}
	if (key->protocol == IPPROTO_UDP) {
		if (is_new)
			note_new(&rooms4.udp, &rooms4.udp_turnover, udp_flows, flow);
		return bpf_map_update_elem(&udp4, key, flow, BPF_ANY);
	}
	if (is_new)
		note_new(&rooms4.tcp, &rooms4.tcp_turnover, tcp_flows, flow);
	return bpf_map_update_elem(&tcp4, key, flow, BPF_ANY);
}

static __always_inline int store_flow6(const struct flow_key6 *key, const struct flow *flow, bool is_new)
{
	if (!is_established(flow)) {
		if (is_new)
			note_new(&rooms6.opening, &rooms6.opening_turnover, opening_flows, flow);
		return bpf_map_update_elem(&flows6, key, flow, BPF_ANY);
	}
	if (key->protocol == IPPROTO_UDP) {
		if (is_new)
			note_new(&rooms6.udp, &rooms6.udp_turnover, udp_flows, flow);
		return bpf_map_update_elem(&udp6, key, flow, BPF_ANY);
	}
	if (is_new)
		note_new(&rooms6.tcp, &rooms6.tcp_turnover, tcp_flows, flow);
	return bpf_map_update_elem(&tcp6, key, flow, BPF_ANY);
}

/*
 * Stores a direction in the table of its stage: `flow` for `packet`, or `reply` for `other`, of the scratch room. 6.1's
 * verifier lets no helper read what a function was given a pointer to.
 */
#define THIS_WAY 0
#define BACK 1

__noinline int store_flow(__u32 direction, __u32 is_new)
{
	struct scratch *scratch = get_scratch();
	const struct tuple *tuple;
	const struct flow *flow;
	int error;

	if (!scratch)
		return PASS;
	tuple = direction == THIS_WAY ? &scratch->packet : &scratch->other;
	flow = direction == THIS_WAY ? &scratch->flow : &scratch->reply;
	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		error = store_flow4(&key, flow, is_new);
	} else {
		fill_key6(&scratch->key6, tuple);
		error = store_flow6(&scratch->key6, flow, is_new);
	}
	if (error)
		count_event(flow_not_stored);
	return error;
}

/* From the table of flows that are not established. */
static __noinline int forget_opened(struct scratch *scratch, const struct tuple *tuple)
{
	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		if (!bpf_map_delete_elem(&flows4, &key))
			note_forgotten(&rooms4.opening);
		return 0;
	}
	fill_key6(&scratch->key6, tuple);
	if (!bpf_map_delete_elem(&flows6, &scratch->key6))
		note_forgotten(&rooms6.opening);
	return 0;
}

/* From every table. */
__noinline int forget_flow(const struct tuple *tuple)
{
	struct scratch *scratch = get_scratch();
	bool is_udp;
	long error;

	if (!scratch || !tuple)
		return PASS;
	is_udp = tuple->protocol == IPPROTO_UDP;
	forget_opened(scratch, tuple);
	if (tuple->family == AF_INET) {
		struct flow_key4 key;

		fill_key4(&key, tuple);
		error = is_udp ? bpf_map_delete_elem(&udp4, &key) : bpf_map_delete_elem(&tcp4, &key);
		if (!error)
			note_forgotten(is_udp ? &rooms4.udp : &rooms4.tcp);
		return 0;
	}
	fill_key6(&scratch->key6, tuple);
	error = is_udp ? bpf_map_delete_elem(&udp6, &scratch->key6) : bpf_map_delete_elem(&tcp6, &scratch->key6);
	if (!error)
		note_forgotten(is_udp ? &rooms6.udp : &rooms6.tcp);
	return 0;
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

/* What a TCP header says about the flow. */
static __always_inline void fill_marks(struct marks *marks, const void *l4, const void *end, bool is_udp)
{
	const __u8 *flags = l4 + TCP_FLAGS_OFFSET;
	const __u32 *words = l4;

	marks->flags = 0;
	if (is_udp || l4 + sizeof(struct tcphdr) > end)	/* the length was checked, but 6.1's verifier does not see it */
		return;
	marks->sequence = bpf_ntohl(words[1]);
	marks->acknowledged = bpf_ntohl(words[2]);
	marks->flags = *flags;
}

/*
 * An answer, by `reply`, which is not established: the client's next packet may show that it got it. No reset does: it carries
 * the number that it was asked with (RFC 9293, 3.10.7.1), or none, so that whoever forged the packet before knows it without
 * having got it.
 */
__noinline int note_answer(struct flow *reply)
{
	struct scratch *scratch = get_scratch();
	struct tuple *request;
	struct flow *known;

	if (!scratch || !reply)
		return 0;
	if (scratch->packet.protocol == IPPROTO_TCP && scratch->marks.flags & TCP_RST)
		return 0;
	request = &scratch->other;
	if (scratch->packet.protocol == IPPROTO_TCP)
		reply->generation = scratch->marks.sequence;
	reverse(&scratch->packet, request);
	request->destination = reply->address;
	request->ports = join_ports(source_port(request->ports), reply->port);
	known = find_flow(scratch, request);
	if (known && !known->is_reply && known->stage == OPENED)
		known->stage = WATCHED;
	return 0;
}

/*
 * A request of a flow that was answered: has the client got the answer? Then both directions move to the table of
 * established flows. Whether or not, `scratch->flow` is what is known of the request from now on.
 */
__noinline int note_request(const struct flow *known)
{
	struct scratch *scratch = get_scratch();
	const struct marks *marks;
	struct tuple *answer;
	struct flow *reply, *copy;

	if (!scratch || !known)
		return 0;
	marks = &scratch->marks;
	answer = &scratch->other;
	scratch->flow = *known;
	reverse(&scratch->packet, answer);
	answer->source = known->address;
	answer->ports = join_ports(known->port, destination_port(answer->ports));
	reply = find_flow(scratch, answer);
	if (!reply || !reply->is_reply || reply->rule != known->rule)
		return 0;
	if (scratch->packet.protocol == IPPROTO_TCP &&
	    (!(marks->flags & TCP_ACK) || marks->acknowledged - reply->generation - 1 >= MOST_ACKNOWLEDGED))
		return 0;
	copy = &scratch->reply;
	*copy = *reply;
	copy->stage = ESTABLISHED;
	scratch->flow.stage = ESTABLISHED;
	/* Stored before they are forgotten: no packet finds neither. */
	store_flow(THIS_WAY, true);
	store_flow(BACK, true);
	forget_opened(scratch, &scratch->packet);
	return forget_opened(scratch, answer);
}

/* A packet of a flow that is not established yet, but may be now. */
static __always_inline void note_packet(struct scratch *scratch, struct flow *known)
{
	if (!known->is_reply) {
		note_request(known);
		return;
	}
	note_answer(known);
	scratch->flow = *known;
}

/* What an address is to this host: LOCAL_ADDRESS, LOCAL_BROADCAST, or 0. */
static __noinline __u32 find_local(struct scratch *scratch, const struct address *address, __u32 family)
{
	struct local_key *key = &scratch->local;
	const __u32 *found;

	key->prefix_length = FAMILY_BITS + (family == AF_INET ? 32 : 128);
	key->family = family;
	key->address = *address;
	found = bpf_map_lookup_elem(&locals, key);
	return found ? *found : 0;
}

/* Is it an address of this host? */
static __always_inline bool is_local(struct scratch *scratch, const struct address *address, __u32 family)
{
	return find_local(scratch, address, family) == LOCAL_ADDRESS;
}

/* Whether a rule leads to this address and port, over the packet's protocol. */
static __always_inline bool is_target(const struct tuple *packet, const struct address *address, __u16 port)
{
	struct service_key key = {
		.address = *address,
		.port = port,
		.protocol = packet->protocol,
		.family = packet->family,
	};

	return bpf_map_lookup_elem(&targets, &key);
}

/*
 * Is this an answer whose flow was pushed out? Nobody must see it, for it would come from an address that the client
 * never spoke to. What a server sends of its own accord looks the same, so as long as no flow can have been pushed out,
 * nothing is taken for one.
 */
static __noinline bool is_lost_answer(struct scratch *scratch)
{
	const struct tuple *packet = &scratch->packet;

	if (!is_crowded(packet) || !is_target(packet, &packet->source, source_port(packet->ports)))
		return false;
	if ((scratch->marks.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)	/* the server calls somebody */
		return false;
	return !is_local(scratch, &packet->destination, packet->family);
}

#endif
