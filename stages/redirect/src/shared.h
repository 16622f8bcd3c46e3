/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the redirect programs and their user side share. Declared here once: libbpf-cargo emits the Rust types
 * of every struct below that a map or a global uses.
 *
 * Addresses are four words in network byte order. An IPv4 address is the first word, the others are zero; the
 * family stands beside it wherever both may occur.
 */
#ifndef TARN_REDIRECT_SHARED_H
#define TARN_REDIRECT_SHARED_H

/* No rule: a service whose rules all ask for a source prefix. */
#define NO_RULE 0xffffffffU

/* A set of ports: bit n % 64 of word n / 64 is the port that reads n when loaded as it is in the packet. */
#define PORT_WORDS 1024

struct address {
	__u32 word[4];
};

/* Where a packet is addressed to. A zero address means: any address of this host. */
struct service_key {
	struct address address;
	__u16 port;		/* network byte order */
	__u8 protocol;		/* IPPROTO_UDP or IPPROTO_TCP */
	__u8 family;		/* AF_INET or AF_INET6 */
};

/* Where requests are led to. It stands where the rule is found, so that no further cache line has to be fetched. */
struct target {
	struct address address;
	__u32 rule;		/* the rule's slot, or NO_RULE */
	__u16 port;		/* network byte order; a range's ports are services of their own */
	__u16 padding;
};

/* An address and port that rules match. */
struct service {
	struct target target;	/* of the rule without a source prefix */
	__u32 sources;		/* how many rules with a source prefix there are, in the map `sources` */
};

/* A rule's source prefix, within the rules of one service. The longest prefix is found first. */
struct source_key {
	__u32 prefix_length;	/* of what follows, in bits: SERVICE_BITS plus the prefix's own */
	struct service_key service;
	struct address address;
};

#define SERVICE_BITS 160

/* What an address of this host is. */
#define LOCAL_ADDRESS 1		/* its own: what a zero address in a rule stands for */
#define LOCAL_BROADCAST 2	/* of one of its networks: nobody sends from it */

/* Addresses of this host. */
struct local_key {
	__u32 prefix_length;	/* of what follows, in bits: FAMILY_BITS plus the prefix's own */
	__u32 family;
	struct address address;
};

#define FAMILY_BITS 32

/* Per rule and CPU; of the clients' packets, not of the answers. */
struct counters {
	__u64 packets;
	__u64 bytes;		/* IP packets' length */
	__u64 last_used;	/* jiffies */
	__u64 lost_fragments;	/* of datagrams of this rule, as far as their first came, too: see fragment.h */
};

/* What is not about one rule; per CPU. */
struct events {
	__u64 flow_opened;		/* first packet of a flow, or first after a change */
	__u64 flow_pushed_out;		/* of those that are not established: flows, by their requests' entry */
	__u64 established_pushed_out;
	__u64 answer_dropped;		/* from a target, without a flow, when flows have been pushed out */
	__u64 source_refused;		/* from an address that is nobody's, or this host's own: see decide.h */
	__u64 source_doubted;		/* no way leads back to the source by this device: left to the stack, which judges it */
	__u64 flow_not_stored;		/* the flow table refused an entry: the next packet is decided anew */
	__u64 passed_to_stack;		/* rewritten, then routed by the stack: no neighbour yet, too long, ... */
	__u64 icmp_error_rewritten;
	__u64 icmp_redirect_dropped;	/* about a flow of ours: see icmp.h */
	__u64 fragment_held;
	__u64 fragment_released;
	__u64 fragment_evicted;		/* held too long, or the room was needed: lost */
	__u64 fragment_too_long;	/* longer than a cell: lost */
	__u64 fragment_too_many;	/* more of one datagram than are held: lost */
};

/* How a packet that a tc program handles leaves. */
enum delivery {
	BY_STACK = 0,
	BY_PEER = 1,		/* bpf_redirect_peer: into the namespace at the other end of a veth or netkit */
	BY_EGRESS = 2,		/* bpf_redirect: to the device's transmit side */
	BY_NEIGHBOUR = 3,	/* the same through the kernel's neighbour table; never stored */
};

/* How packets can leave by a device; `exits` holds only those that can do more than the stack. */
struct exit {
	enum delivery delivery;
	__u32 by_xdp;		/* its driver takes packets from XDP programs, and it is in `xdp_devices` */
};

/* What the stack thinks of packets that come in by a device, by where they are from. */
struct ingress {
	__u32 device;		/* by which they reach the stack: the uppermost bridge or bond over it, or the device itself */
	__u32 reverse_path;	/* net.ipv4.conf.*.rp_filter of that */
};

/* The value of rp_filter for which the way back has to be the way that a packet came (RFC 3704, section 2.2). */
#define REVERSE_PATH_STRICT 1

/* An address that rules match or lead to: fragments from or to others are let go. Zero: any address of this host. */
struct address_key {
	struct address address;
	__u32 family;
};

struct address_use {
	__u32 matched;		/* by how many rules */
	__u32 leads_here;	/* how many rules, and bit 31 where any has */
};

/* What the fragments of one datagram have in common (RFC 791, section 2.3; RFC 8200, section 4.5). */
struct datagram_key {
	struct address source;
	struct address destination;
	__u32 identification;
	__u8 protocol;
	__u8 family;
	__u16 padding;
};

struct flow_key4 {
	__u32 source;
	__u32 destination;
	__u32 ports;		/* as in the packet: source, then destination */
	__u32 protocol;
};

struct flow_key6 {
	__u32 source[4];
	__u32 destination[4];
	__u32 ports;
	__u32 protocol;
};

/* How far a flow has come: see flows.h. */
enum stage {
	OPENED = 0,		/* requests: nothing has come back yet */
	WATCHED = 1,		/* the next packet may show more: requests that were answered, replies until established */
	ESTABLISHED = 2,	/* in a table of its own */
};

/* How fast a table's entries are written anew. */
struct turnover {
	__u64 written;		/* new entries, ever */
	__u64 last_half;	/* jiffies: when half as many as it has room for had been written, last */
	__u64 half_before;	/* and the time before */
};

/* Entries of the flow tables of one family, as far as they can be counted. */
struct rooms {
	__u64 opening;
	__u64 tcp;
	__u64 udp;
	struct turnover opening_turnover;
	struct turnover tcp_turnover;
	struct turnover udp_turnover;
};

/*
 * What to do with the packets of one direction of a flow: all that can be known before the next packet comes,
 * so that it costs one lookup. A cache line.
 *
 * Differences are in one's complement (RFC 1624, equation 3): the sum of ~m + m' over what changes, folded to
 * 16 bits, so that HC' = ~(~HC + difference).
 */
struct flow {
	__u64 refresh_at;	/* jiffies; then the next hop is looked up again */
	__u32 generation;	/* of the rules when this was decided; of a TCP reply: the last sequence number seen */
	__u32 rule;
	__u32 ifindex;		/* of the next hop */
	__u16 longest;		/* the route's MTU: IP packets longer than this go by the stack */
	__u8 delivery;		/* enum delivery */
	__u8 is_reply;		/* rewrite the source instead of the destination */
	__u16 header_difference;	/* of the IPv4 header: address and time to live */
	__u16 address_difference;	/* of the pseudo header */
	__u16 port_difference;
	__u16 port;		/* the new one, network byte order */
	struct address address;	/* the new one */
	__u8 ethernet[12];	/* the next hop's address, then ours */
	__u8 by_xdp;		/* the device takes packets from XDP programs */
	__u8 stage;		/* enum stage */
	__u16 ingress;		/* by which device it came when this was decided: the index's lower half; 0: any */
};

/* As much of a fragment as a cell holds, from the IP header on: more than an Ethernet frame. */
#define CELL_LENGTH 2048
#define CELLS 1024
/* Of one datagram: 64 KiB in frames of 1500 bytes come to 45. */
#define MOST_HELD 64

/* What to do with a datagram's fragments. */
struct datagram {
	__u64 since;		/* jiffies: when the first of them came, in whichever order */
	__u64 held;		/* ticket of the cell held last, 0, or DATAGRAM_DECIDED */
	__u32 held_count;
	__u32 lost_count;	/* there was no room for: not yet counted for a rule */
	__u32 is_ours;		/* decided: there is a rule for it, `flow` says what to do */
	__u32 padding;
	struct flow flow;
};

/* A fragment that came before the one with the ports. */
struct cell {
	__u64 ticket;		/* which holding of the cell this is; 0 while it is filled or when it was released */
	__u64 next;		/* ticket of the cell held before, of the same datagram */
	__u32 length;
	__u32 padding;
	__u8 packet[CELL_LENGTH];
};

#define DATAGRAM_DECIDED (~0ULL)

#endif
