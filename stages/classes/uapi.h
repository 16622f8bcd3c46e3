/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * tarn_classes: the module's generic netlink interface, family "tarn_classes". A configuration belongs to the network
 * namespace that the socket was opened in; every command needs CAP_NET_ADMIN in the first user namespace, for the memory of
 * what waits is the host's. Times are nanoseconds.
 *
 * A namespace has up to 16 services, each with its own ports, classes, limit and figures. These commands are about one of them:
 *
 *     NUMBER: u32                                    0 to 15                                   0
 *
 * TARN_CLASSES_CMD_SET: begins a service, or changes one that runs. What is not given stays as it is; at the beginning CLASSES
 *   and PORTS must be given, and what else is not given has its default. When it is refused, nothing has changed.
 *
 *     PORTS: array of struct tarn_classes_ports      the local ports whose requests are scheduled, 1 to 1024 ranges; a port
 *                                                    of another service becomes this one's
 *     CLASSES: array of struct tarn_classes_target   all classes, best first, 1 to 64; the last takes unknown clients
 *     PROTOCOL: u32                                  enum tarn_classes_protocol                TARN_CLASSES_AUTO
 *     RULE: u32                                      enum tarn_classes_rule                    TARN_CLASSES_RATIO
 *     LIMIT: u32                                     requests that the service has at a time   0: find it
 *     WINDOW: u64                                    over which shares are counted             10 s (10 ms to 1 h)
 *     HOLD: u64                                      how long requests gather before a choice  0 (at most 1 s)
 *     HOLD_ROUNDS: u32                               the same, in rounds of the dispatcher     0 (at most 1000)
 *     PATIENCE: u64                                  after which no answer is expected any more  2 s (1 ms to 1 h)
 *     OVERDUE: u64                                   after which a request in service gives up its place to another, and is
 *                                                    waited for all the same; by RATIO  0: two to four times SERVICE (at
 *                                                    most 1 h)
 *     BYTES: u64                                     the most memory that waiting packets take   64 MiB (64 KiB to 4 GiB)
 *
 *   All namespaces together hold at most an eighth of the host's memory: BYTES above that, given or by default, is that, and
 *   GET says so.
 *
 *   The number of classes cannot change while it runs; targets, deadlines and caps can.
 *
 * TARN_CLASSES_CMD_STOP: ends the service, or all of them when there is no NUMBER, which forgets the clients, too; ENOENT when
 *   there is nothing to end. What waits goes on to the application.
 *
 * TARN_CLASSES_CMD_RESET: all counters and shares of the service begin at zero; requests that wait or are in service stay, and
 *   count no more.
 *
 * TARN_CLASSES_CMD_GET: the service, or ENOENT. The answer has the attributes of SET and
 *
 *     IN_FLIGHT: u32        requests that the service has now
 *     PLACES: u32           those of them that are not overdue: LIMIT is about these
 *     LIMIT_NOW: u32        the limit in force
 *     OVERDUE_NOW: u64      OVERDUE in force
 *     SERVICE: u64          mean time from handing a request on to its answer
 *     FIGURES: array of struct tarn_classes_figures, one a class
 *     CHANGES: u64          of the clients, so far; what is over is none
 *
 * TARN_CLASSES_CMD_GET_TIMES: the response times of the service's class in CLASS: u32, from arrival to answer.
 *
 *     TIMES: array of u32, TARN_CLASSES_TIMES        how many answers took how long. A time of v microseconds counts in
 *       bucket v when v < 16, otherwise in 16 * (e - 3) + (v >> (e - 4)) - 16, where 2^e <= v < 2^(e+1): buckets are at most
 *       1/16 of their value wide. The last one takes all above.
 *
 * Clients are known to all services of the namespace, and stay when those end. The longest prefix that a client's address is in
 * says of which class it is; one that is in none, or of a class that the service does not have, is of the last class.
 *
 * TARN_CLASSES_CMD_CHANGE_CLIENTS: gives prefixes their classes, in place of those that they have, or takes them out. A change
 *   of many takes several messages, of which the last one says COMMIT; all of it is carried out then, or nothing. Of a
 *   prefix that is in a change more than once, the last entry counts.
 *
 *     CLIENTS: array of struct tarn_classes_client   at most 2,047
 *     STEP: u32                                      TARN_CLASSES_BEGIN: drops what was given before without COMMIT;
 *                                                    TARN_CLASSES_COMMIT                       both
 *     MOST: u32                                      prefixes that there may be                1,048,576
 *
 *   ENOSPC: more than MOST.
 *   EBUSY: a part without BEGIN, of a change that this socket has not begun, or that another one has dropped since by a BEGIN.
 *
 * TARN_CLASSES_CMD_FIND_CLIENT: the longest prefix around the only one in CLIENTS, or that itself; ENOENT when there is none.
 *
 *     CLIENTS: one struct tarn_classes_client
 *
 * TARN_CLASSES_CMD_GET_CLIENTS, a dump: all of them, in any order. One may come twice when there are changes meanwhile.
 *
 *     CLIENTS: array of struct tarn_classes_client
 *
 * TARN_CLASSES_CMD_CLEAR_CLIENTS: takes all out.
 */
#ifndef TARN_CLASSES_UAPI_H
#define TARN_CLASSES_UAPI_H

#include <linux/types.h>

#define TARN_CLASSES_FAMILY "tarn_classes"
#define TARN_CLASSES_VERSION 4

#define TARN_CLASSES_MOST 64
#define TARN_CLASSES_MOST_SERVICES 16
#define TARN_CLASSES_MOST_PORTS 1024
#define TARN_CLASSES_TIMES 400

/* No class: of a client that is to be taken out. */
#define TARN_CLASSES_NOBODY 0xffff
#define TARN_CLASSES_CLIENTS_DEFAULT (1 << 20)
#define TARN_CLASSES_CLIENTS_MOST (1 << 24)

/*
 * Whoever knows better than an address may write the class on the packet before it reaches us (skb->priority; with nftables,
 * `meta priority set 7461:1`): this in the upper 16 bits, the class in the lower ones. Priorities without it are not ours.
 */
#define TARN_CLASSES_PRIORITY 0x7461

enum tarn_classes_command {
	TARN_CLASSES_CMD_UNSPEC,
	TARN_CLASSES_CMD_SET,
	TARN_CLASSES_CMD_STOP,
	TARN_CLASSES_CMD_RESET,
	TARN_CLASSES_CMD_GET,
	TARN_CLASSES_CMD_GET_TIMES,
	TARN_CLASSES_CMD_CHANGE_CLIENTS,
	TARN_CLASSES_CMD_FIND_CLIENT,
	TARN_CLASSES_CMD_GET_CLIENTS,
	TARN_CLASSES_CMD_CLEAR_CLIENTS,
};

enum tarn_classes_attribute {
	TARN_CLASSES_A_UNSPEC,
	TARN_CLASSES_A_PAD,
	TARN_CLASSES_A_PORTS,
	TARN_CLASSES_A_CLASSES,
	TARN_CLASSES_A_RULE,
	TARN_CLASSES_A_LIMIT,
	TARN_CLASSES_A_WINDOW,
	TARN_CLASSES_A_HOLD,
	TARN_CLASSES_A_HOLD_ROUNDS,
	TARN_CLASSES_A_PATIENCE,
	TARN_CLASSES_A_OVERDUE,
	TARN_CLASSES_A_BYTES,
	TARN_CLASSES_A_NUMBER,
	TARN_CLASSES_A_PROTOCOL,
	TARN_CLASSES_A_IN_FLIGHT,
	TARN_CLASSES_A_PLACES,
	TARN_CLASSES_A_LIMIT_NOW,
	TARN_CLASSES_A_OVERDUE_NOW,
	TARN_CLASSES_A_SERVICE,
	TARN_CLASSES_A_FIGURES,
	TARN_CLASSES_A_CLASS,
	TARN_CLASSES_A_TIMES,
	TARN_CLASSES_A_CLIENTS,
	TARN_CLASSES_A_STEP,
	TARN_CLASSES_A_MOST,
	TARN_CLASSES_A_CHANGES,
	TARN_CLASSES_A_END,
};
#define TARN_CLASSES_A_MAX (TARN_CLASSES_A_END - 1)

/* How the next class to be served is chosen. */
enum tarn_classes_rule {
	/* S/(N*P) over a sliding window; requests that cannot be answered in time any more are set aside. */
	TARN_CLASSES_RATIO,
	/* The thesis's: S/(N*P) since the start, oldest request first, deadline counted from when it was handed on. */
	TARN_CLASSES_PUBLISHED,
};

/*
 * What a request is. With any of them, a connection over TCP that begins with a TLS handshake or with HTTP/2 is taken as a whole, as with
 * CONNECTION.
 */
enum tarn_classes_protocol {
	/* STREAM over TCP, and a datagram each over UDP. */
	TARN_CLASSES_AUTO,
	/* HTTP/1: what begins with a method, until an answer that is not an interim one; after an upgrade nothing is a request. */
	TARN_CLASSES_HTTP,
	/* What comes in until something goes out. */
	TARN_CLASSES_STREAM,
	/* Over UDP a datagram that is no response; over TCP as STREAM. */
	TARN_CLASSES_DNS,
	/* A connection: its first data waits, and it is in service as long as it is active. Over UDP, QUIC's. */
	TARN_CLASSES_CONNECTION,
};

/* Where a message is in a change of clients. */
enum tarn_classes_step {
	TARN_CLASSES_BEGIN = 1,
	TARN_CLASSES_COMMIT = 2,
};

/* Clients by a prefix of their addresses. */
struct tarn_classes_client {
	__u8 address[16];	/* network byte order; of IPv4 the first 4 bytes. What is behind the prefix is 0 */
	__u8 family;		/* AF_INET or AF_INET6 */
	__u8 length;		/* of the prefix, in bits */
	__u16 class;		/* or TARN_CLASSES_NOBODY */
	__u32 origin;		/* kept as it was given: 0 to 255 */
	__u64 timeout;		/* ns after which the class is lost; 0: never */
};

/* Local ports, host byte order. */
struct tarn_classes_ports {
	__u16 first;
	__u16 last;
	__u8 protocol;		/* IPPROTO_TCP or IPPROTO_UDP */
	__u8 padding[3];	/* 0 */
};

/* What is promised to a class. */
struct tarn_classes_target {
	__u64 deadline;		/* ns, 1 us to 1 h */
	__u32 target;		/* share of answers in time, in 1/10000: 1 to 10000 */
	__u32 cap;		/* packets that may wait, 1 to 1048576 */
};

/* What became of a class's requests, since the start or the last reset. */
struct tarn_classes_figures {
	__u64 requests;		/* arrived */
	__u64 in_time;		/* answered within the deadline */
	__u64 late;		/* answered later */
	__u64 unanswered;	/* handed on, and never answered: patience ran out, or the connection was closed or reset */
	__u64 set_aside;	/* could not be answered in time any more, and waited for idle times */
	__u64 suspected;	/* waited behind all others: too many of their client's requests were left unanswered */
	__u64 packets;		/* of requests; a request over TCP may have several */
	__u64 dropped_cap;	/* packets: the class's cap was reached; over TCP, the connection of what is late or suspected is reset */
	__u64 dropped_memory;	/* packets: BYTES, or an eighth of the host's memory, was reached, or the kernel had none */
	__u64 dropped_gone;	/* packets: their route went away; those of a namespace that goes are in the kernel's log */
	__u64 dropped_repeated;	/* packets: sent again while the first one waits here */
	__u64 connections;	/* of the requests, those that are connections; in time when let in early enough for a usual answer */
	__u64 unscheduled;	/* packets that cannot wait, and passed: of signed connections (TCP-MD5, TCP-AO) */
	__u64 window_requests;	/* arrived within the window, without those of suspected clients */
	__u64 window_in_time;	/* those of them that were answered in time */
	__u64 rule_requests;	/* N, as the rule goes by it: RATIO leaves out what nobody could answer */
	__u64 rule_in_time;	/* S */
	__u32 waiting;		/* requests now, without those set aside */
	__u32 aside;		/* requests that wait for idle times now: set aside, or suspected */
	__u32 in_flight;	/* requests that the service has now */
	__u32 waiting_packets;	/* packets now, with those set aside */
};

#endif
