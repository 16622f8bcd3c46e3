/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * tarn_reassembly: the module's generic netlink interface, family "tarn_reassembly". What runs belongs to the network
 * namespace that the socket was opened in. Every command needs CAP_NET_ADMIN in the first user namespace: the memory that a
 * namespace may hold is the host's.
 *
 * TARN_REASSEMBLY_CMD_SET: begins, or changes what runs. What is not given stays as it is, or has its default at the
 *   beginning. When it is refused, nothing has changed.
 *
 *     MEMORY: u64      bytes that held fragments may take      net.ipv4.ipfrag_high_thresh (256 KiB to 256 MiB)
 *     SHARE: u32       a source's share of it is 1/SHARE       8 (2 to 64)
 *     TIMEOUT4: u64    ns from a datagram's first fragment     net.ipv4.ipfrag_time (100 ms to 120 s)
 *     TIMEOUT6: u64    the same for IPv6                       net.ipv6.ip6frag_time (100 ms to 120 s)
 *     DATAGRAMS: u32   enum tarn_reassembly_datagrams          TARN_REASSEMBLY_AUTO
 *
 * TARN_REASSEMBLY_CMD_STOP: ends. Held fragments are freed, and counted as stopped; later ones go to the stack.
 *
 * TARN_REASSEMBLY_CMD_GET: what runs, or ENOENT. The answer has the attributes of SET and
 *
 *     FIGURES: struct tarn_reassembly_figures
 *     IPV4, IPV6: struct tarn_reassembly_counts    since the beginning
 *
 * TARN_REASSEMBLY_CMD_GET_SOURCES: the sources that hold most memory and those whose datagrams failed most, at most 512 in no
 *   order, or ENOENT.
 *
 *     SOURCES: array of struct tarn_reassembly_source
 */
#ifndef TARN_REASSEMBLY_UAPI_H
#define TARN_REASSEMBLY_UAPI_H

#include <linux/types.h>

#define TARN_REASSEMBLY_FAMILY "tarn_reassembly"
#define TARN_REASSEMBLY_VERSION 1

/* The most sources in an answer. */
#define TARN_REASSEMBLY_SOURCES 512

enum tarn_reassembly_command {
	TARN_REASSEMBLY_CMD_UNSPEC,
	TARN_REASSEMBLY_CMD_SET,
	TARN_REASSEMBLY_CMD_STOP,
	TARN_REASSEMBLY_CMD_GET,
	TARN_REASSEMBLY_CMD_GET_SOURCES,
};

enum tarn_reassembly_attribute {
	TARN_REASSEMBLY_A_UNSPEC,
	TARN_REASSEMBLY_A_PAD,
	TARN_REASSEMBLY_A_MEMORY,
	TARN_REASSEMBLY_A_SHARE,
	TARN_REASSEMBLY_A_TIMEOUT4,
	TARN_REASSEMBLY_A_TIMEOUT6,
	TARN_REASSEMBLY_A_DATAGRAMS,
	TARN_REASSEMBLY_A_FIGURES,
	TARN_REASSEMBLY_A_IPV4,
	TARN_REASSEMBLY_A_IPV6,
	TARN_REASSEMBLY_A_SOURCES,
	TARN_REASSEMBLY_A_END,
};
#define TARN_REASSEMBLY_A_MAX (TARN_REASSEMBLY_A_END - 1)

/* Whose datagrams are reassembled here; the others pass. */
enum tarn_reassembly_datagrams {
	/* All where connection tracking reassembles in this namespace, else this host's. */
	TARN_REASSEMBLY_AUTO,
	/* Those that are addressed to this host. */
	TARN_REASSEMBLY_HOST,
	/* All that arrive. */
	TARN_REASSEMBLY_ALL,
};

/* What is held now. Bytes as the kernel accounts them (truesize), with what is needed to keep them in order. */
struct tarn_reassembly_figures {
	__u64 memory;		/* bytes, at most about MEMORY */
	__u64 memory_max;	/* the most that they were */
	__u64 strangers;	/* bytes of sources that have not completed a datagram within a minute */
	__u32 datagrams;
	__u32 sources;
	__u32 whose[2];		/* enum tarn_reassembly_datagrams in force, IPv4 and IPv6: never AUTO */
};

/* What became of a family's fragments and datagrams. */
struct tarn_reassembly_counts {
	/* fragments */
	__u64 fragments;	/* taken */
	__u64 passed;		/* not ours: forwarded, or of a datagram that had begun in the stack */
	__u64 duplicates;	/* ignored: the same bytes of the datagram are there */
	__u64 no_memory;	/* dropped: the kernel had no memory for a new datagram or source */
	/* datagrams */
	__u64 completed;
	/* datagrams that were discarded, by reason */
	__u64 timeout;
	__u64 evicted_share;	/* their source held more than its share of a full memory */
	__u64 evicted_stranger;	/* the memory was full, and their source had completed none */
	__u64 evicted_age;	/* the memory was full */
	__u64 overlap;
	__u64 bad_end;		/* beyond 65,535 bytes, two ends, or bytes after the end */
	__u64 bad_length;	/* no bytes, or not a multiple of 8 with more to come */
	__u64 reused;		/* their identifier was: their source had begun 4,096 others since */
	__u64 ecn;		/* contradicting marks (RFC 3168, 5.3) */
	__u64 security;		/* fragments that came by different IPsec paths */
	__u64 allocation;	/* no memory to put them together, or to keep them in order */
	__u64 stopped;		/* TARN_REASSEMBLY_CMD_STOP, or their namespace went away */
};

/* One source: an IPv4 address, or the first 64 bits of an IPv6 address. */
struct tarn_reassembly_source {
	__u8 address[16];	/* IPv4: the first 4 bytes */
	__u64 memory;		/* bytes held now */
	__u64 failed;		/* datagrams discarded, for any reason, since it was first noticed; 0 when not watched */
	__u32 datagrams;	/* held now */
	__u8 family;		/* AF_INET or AF_INET6 */
	__u8 is_known;		/* has completed a datagram within the last minute */
	__u8 padding[2];
};

#endif
