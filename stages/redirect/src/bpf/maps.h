/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps. Their sizes are set by the user side before loading: every one has a hard cap.
 */
#ifndef TARN_REDIRECT_MAPS_H
#define TARN_REDIRECT_MAPS_H

/*
 * By CPU, then by rule's slot: counter_slots for each CPU. A per-CPU array would hold the same, but the kernel allocates
 * each of its entries by itself, which takes most of the time of a start. The user side maps it into its memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} rule_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct source_key);
	__type(value, struct target);
} sources SEC(".maps");

/*
 * The addresses of this host, kept by the user side: no helper can tell them. bpf_fib_lookup says NOT_FWDED of them, but
 * just so of addresses without a route, and FWD_DISABLED of all where the device does not forward.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct local_key);
	__type(value, __u32);
} locals SEC(".maps");

/*
 * Flows, keyed by the packet as it arrives: a request by the address the client spoke to, a reply by the server
 * it came from. Least recently used entries make room; one that is needed again is decided anew. These are flows that
 * are not established; those that are have tables of their own, by protocol: see flows.h.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key4);
	__type(value, struct flow);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key6);
	__type(value, struct flow);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key4);
	__type(value, struct flow);
} tcp4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key6);
	__type(value, struct flow);
} tcp6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key4);
	__type(value, struct flow);
} udp4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key6);
	__type(value, struct flow);
} udp6 SEC(".maps");

/* Where rules lead to, and how many: their answers are told from other packets by it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address_key);
	__type(value, struct address_use);
} addresses SEC(".maps");

/* Datagrams that arrive in fragments. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct datagram_key);
	__type(value, struct datagram);
} datagrams SEC(".maps");

/* A ring: the oldest cell is used again, and a fragment that it still holds is lost and counted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CELLS);
	__type(key, __u32);
	__type(value, struct cell);
} cells SEC(".maps");

/* Devices that packets can leave by better than through the stack, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct exit);
} exits SEC(".maps");

/* Devices an XDP program may redirect to: those whose driver has ndo_xdp_xmit ready. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 65536);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} xdp_devices SEC(".maps");

/* Devices that packets come in by, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct ingress);
} ingresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct events);
} events SEC(".maps");

/* Of a TCP header, in host byte order; no flags: it is not TCP, or not known. */
struct marks {
	__u32 sequence;
	__u32 acknowledged;
	__u8 flags;
};

/*
 * Room for deciding about one packet, beyond the stack's 512 bytes. Ours as long as we run, for these programs run with
 * bottom halves off, but for one case: bpf_clone_redirect runs the egress program of the device that it sends to, on this
 * CPU. Nothing in here holds across it (release() in fragment.h).
 */
struct scratch {
	struct tuple packet;	/* as it arrived */
	struct tuple other;	/* as rewritten, or of the other direction */
	struct flow flow;	/* what was decided */
	struct flow reply;	/* of the other direction */
	struct bpf_fib_lookup fib;
	struct bpf_redir_neigh hop;
	struct flow_key6 key6;
	struct source_key source;
	struct local_key local;
	struct ipv6hdr quoted6;	/* in an ICMPv6 error */
	struct datagram_key datagram_key;
	struct datagram datagram;
	struct address_key address;
	struct marks marks;
	__u32 mark;		/* of the packet: skb->mark */
	__u32 has_hop;		/* `hop` is this packet's, just looked up */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline struct scratch *get_scratch(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&scratches, &first);
}

/*
 * Changes while the programs run. The user side counts `generation` up after every change of the rules; a flow
 * decided under an older one is decided anew by its next packet.
 */
volatile __u32 generation;
/* Whether `rp_filter` is strict for any device: then a flow's packets are decided about anew when they change devices. */
volatile __u32 is_strict;
/*
 * Ports that any rule matches or leads to: other packets are let go after two bit tests. Bits are only ever set
 * while the programs run: one that is no longer needed costs a lookup, and answers under way still need theirs.
 */
__u64 ports_in_use[PORT_WORDS];
__u64 target_ports[PORT_WORDS];

/* The cell that was filled last. The programs write no other variables but this and the next. */
__u64 last_ticket SEC(".data.cells") = 0;

struct rooms rooms4 SEC(".data.rooms") = {};
struct rooms rooms6 SEC(".data.rooms") = {};

/* Set once, before loading. */
const volatile __u64 refresh_jiffies = 250;	/* how long a next hop is trusted without a look at the routes */
const volatile __u64 datagram_jiffies = 7500;	/* how long fragments are of one datagram: the stack's 30 seconds */
const volatile __u64 answer_jiffies = 2500;	/* how long after a request an answer is waited for */
const volatile __u64 opening_flows = 1024;	/* entries of the flow tables, of each family */
const volatile __u64 tcp_flows = 1024;
const volatile __u64 udp_flows = 1024;
const volatile __u32 counter_slots = 1;		/* slots of one CPU in rule_counters */

/* Counts one of the fields of struct events. */
#define count_event(field) do {							\
	__u32 first_ = 0;							\
	struct events *events_ = bpf_map_lookup_elem(&events, &first_);		\
	if (events_)								\
		events_->field += 1;						\
} while (0)

/* A rule's counters on this CPU. The product is below the map's max_entries, which the user side sizes in 32 bits. */
static __always_inline struct counters *counters_of(__u32 rule)
{
	__u32 place = bpf_get_smp_processor_id() * counter_slots + rule;

	return bpf_map_lookup_elem(&rule_counters, &place);
}

static __always_inline void count_packet(__u32 rule, __u32 length)
{
	struct counters *count = counters_of(rule);

	if (!count)
		return;
	count->packets += 1;
	count->bytes += length;
	count->last_used = bpf_jiffies64();
}

static __always_inline void count_lost(__u32 rule, __u32 fragments)
{
	struct counters *count;

	if (!fragments || rule == NO_RULE)
		return;
	count = counters_of(rule);
	if (count)
		count->lost_fragments += fragments;
}

static __always_inline bool has_port(const __u64 *set, __u16 port)
{
	return set[port >> 6] & (1ULL << (port & 63));
}

/* Whether a packet between these ports can be for a rule, or an answer; as it leaves, only answers are looked at. */
static __always_inline bool has_port_of_ours(__u32 ports, bool egress)
{
	if (egress)
		return has_port(target_ports, source_port(ports));
	return has_port(ports_in_use, destination_port(ports)) || has_port(ports_in_use, source_port(ports));
}

#endif
