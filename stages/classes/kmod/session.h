/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections that cannot be looked into (TLS, HTTP/2, whatever a service speaks with `connection`): what waits for a place is the
 * connection, with its first data. It holds the place while it is active: until it is closed, or the service has spoken last and no more
 * is to be expected. When its client goes on, it is active again, and does not wait: a request of its own may be in the middle of
 * what cannot be seen. It takes a place all the same, as long as those that have not waited have fewer than the limit says; and half of
 * the limit is there for those that wait, whatever these have: see has_room().
 *
 * It is in time when it was let in early enough that an answer which takes as long as usual is in time, and the service has answered.
 *
 * Nothing is remembered of a connection that is not active: whether data is its first, TCP knows. Everything here wants classes.lock
 * held.
 */
#ifndef TARN_CLASSES_SESSION_H
#define TARN_CLASSES_SESSION_H

#include "requests.h"

/* It was handed on to the service. */
void session_let_in(struct classes *classes, struct request *request);

/* Its client goes on where nothing is remembered of it. `flow`: its own, or NULL. */
void session_resume(struct classes *classes, const struct packet *packet, struct flow *flow, u32 class, bool is_suspected, u64 now);

/* It does not rest, for its client has sent something. */
static inline void session_owes(struct request *request)
{
	list_del_init(&request->queue);
	request->is_owed = true;
}

/* The client sends more to one that is in service. */
void session_heard(struct classes *classes, struct request *request, const struct packet *packet, u64 now);

/* The service sends something, or closes. */
void session_spoke(struct classes *classes, struct request *request, const struct packet *packet, u64 now);

/* The patience with it has ended: it is forgotten, or watched on if either side still sends. */
void session_expire(struct classes *classes, struct request *request, u64 now);

/* It is closed. */
void session_end(struct classes *classes, struct request *request, u64 now);

/* Takes the places of those that have nothing more to expect. */
void sessions_rest(struct classes *classes, u64 now);

/* When the first of those is to be looked at, ns; U64_MAX: there is none. */
u64 sessions_rest_at(struct classes *classes);

#endif
