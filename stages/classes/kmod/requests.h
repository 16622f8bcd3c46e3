/* SPDX-License-Identifier: GPL-2.0 */
/* Flows and their requests: arrival, hand-on, answer, end. Everything here wants classes.lock held. */
#ifndef TARN_CLASSES_REQUESTS_H
#define TARN_CLASSES_REQUESTS_H

#include "classes.h"

/* What data from a client is: see protocol.h. */
enum unit {
	UNIT_NONE,			/* no request; but a datagram without data is one */
	UNIT_EXCHANGE,			/* the beginning of a request */
	UNIT_SESSION,			/* of a connection that is one as a whole */
	UNIT_SESSION_GOES_ON,		/* or more of such a connection */
};

/* What data for a client is. */
enum answer {
	ANSWER_WHOLE,
	ANSWER_INTERIM,			/* of an exchange: another one follows */
	ANSWER_UPGRADES,		/* of an exchange: the last one of HTTP in its connection */
	ANSWER_OF_TLS,			/* of a connection that is a request as a whole: its first one */
	ANSWER_OF_H2,
};

/* A packet from or to a client, as the hooks have read it. */
struct packet {
	struct flow_key key;
	u32 bucket;			/* of classes.flows, by the key */
	u32 offset;			/* bytes: of the transport header */
	u32 payload, payload_offset;	/* bytes */
	u32 seq, end_seq;		/* TCP: of the first byte, and behind the last, which a FIN is */
	u32 ack;			/* TCP: what it acknowledges, if it has a flag for that */
	bool is_syn, is_fin, is_reset;	/* TCP */
	bool has_ack;			/* TCP: it acknowledges something; of a segment that waits, something that TCP takes */
	bool resets;			/* TCP: takes this RST for one */
	bool is_proven;			/* TCP: the client is at its address */
	bool is_first;			/* TCP: the service has got no data of the connection yet */
	bool is_h2;			/* UNIT_SESSION: of HTTP/2, and not of TLS */
	bool is_notice;			/* of a client: one short record of TLS, which may ask for nothing */
	enum unit unit;			/* from a client */
	enum answer answer;		/* for a client, where one is awaited */
};

enum arrival {
	PASSES,				/* goes on at once, or is none of ours */
	WAITS,				/* must be held: see request_hold() */
};

/* Whether the client is a suspected one. */
bool request_is_suspect(const struct classes *classes, const struct flow_key *key, u64 now);

/* A packet for one of our ports has come. A request that may go on at once is in service when this returns. */
enum arrival request_arrive(struct classes *classes, const struct packet *packet, u32 class, u64 now);

/*
 * Lets a packet wait, or says that it goes on after all: the request that it belongs to was handed on meanwhile. What is
 * dropped goes to `dropped`: `held` itself, or what is late already, for its sake.
 */
enum arrival request_hold(struct classes *classes, const struct packet *packet, u32 class, u64 now, struct held *held,
			  struct list_head *dropped);

/* A packet with payload leaves for a client, or the end of the service's side of a connection. */
void request_answer(struct classes *classes, const struct sk_buff *skb, struct packet *packet, u64 now);

/* Has a request that waits, and is not late, wait behind all others: its client has come under suspicion since. */
void request_suspect(struct classes *classes, struct request *request, u64 now);

/* Takes a waiting request out of its queue and counts it as handed on. */
void request_hand_on(struct classes *classes, struct request *request, u64 now);

/* Its packets were delivered. */
void request_delivered(struct classes *classes, struct request *request, u64 now);

/* Ends requests whose answers nobody expects any more. */
void requests_expire(struct classes *classes, u64 now);

/* It ends without an answer. */
void request_count_unanswered(struct classes *classes, struct request *request);

/* As limit_answer(); when a limit begins, the classes are judged anew. */
void requests_answer_counts(struct classes *classes, u64 handed_on, u64 heard, u64 at_most, u32 inside, u64 now);

/* Its answer has begun: in time or not, `took` ns after it came. */
void request_count_answered(struct classes *classes, struct request *request, bool is_in_time, u64 took);

/* Takes their places from requests whose answers are likely no more. */
void requests_become_overdue(struct classes *classes, u64 now);

/* Ends requests without a place beyond those that there may be, the oldest first. */
void requests_end_overdue(struct classes *classes);

/* How long after it was handed on a request becomes overdue, in ns. */
u64 requests_overdue_after(const struct classes *classes);

/* Takes the packets of a request that came in by this device, or all when it is NULL. */
void request_take(struct classes *classes, struct request *request, const struct net_device *dev,
		  struct list_head *packets);

/* Takes a waiting request, with all of its packets, out for good. */
void request_discard(struct classes *classes, struct request *request, struct list_head *packets);

/* Takes what waits and came in by this device out. */
void requests_take_device(struct classes *classes, const struct net_device *dev, struct list_head *packets);

/* Frees every request; their packets go to `packets`. */
void requests_flush(struct classes *classes, struct list_head *packets);

/* Lets the window of shares go on, if it is time. */
void shares_go_on(struct classes *classes, u64 now);

static inline void shares_advance(struct classes *classes, u64 now)
{
	if (unlikely(now >= classes->next_slot))
		shares_go_on(classes, now);
}

/* When the first of the requests in service whose clients have given up leaves its place, ns; U64_MAX: there is none. */
u64 requests_abandoned_until(struct classes *classes);

#endif
