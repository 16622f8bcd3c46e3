// SPDX-License-Identifier: GPL-2.0
/*
 * See session.h. When has the service spoken last? It may send something at once, such as TLS's session tickets, and its answer a hundred
 * milliseconds later, and nothing shows that more is to come. So how long that takes is measured: pauses between what it sends, in
 * which the client sends nothing. A connection rests when it has been silent for longer than nearly all of these pauses. One that rests
 * is watched for as long as `patience`: what the service sends then was such a pause, too.
 *
 * What the service needs for a connection is counted once: from when it was let in until the service has spoken last before the first
 * turn of the client's that is not of the handshake any more.
 */
#include "flows.h"
#include "session.h"

#define PAUSE_LEAST (1ULL * NSEC_PER_MSEC)	/* shorter ones are those of TCP */
#define REST_AT_FIRST (1ULL * NSEC_PER_SEC)	/* it is overdue before, where answers take less */
#define REST_LEAST (5ULL * NSEC_PER_MSEC)
#define SMOOTH_SHIFT 3
#define DEVIATIONS 4				/* as for TCP's retransmission timer (RFC 6298) */
#define HANDSHAKE_TURNS 2			/* of the client's after its hello: TLS's Finished, and what follows the session tickets */
/*
 * Short records of the client's that are believed to ask for nothing, until it goes on: a browser acknowledges the service's settings, and
 * opens a window. One who asks in short records would otherwise never have gone on.
 */
#define NOTICES_MOST 2

/* One in each turn of a client's, so that no stream of messages counts for more than others' answers. */
static void learn_pause(struct classes *classes, struct request *request, u64 now)
{
	u64 off, pause = min(now - request->spoke, classes->patience);

	request->has_paused = true;
	if (!classes->pause) {
		classes->pause = pause;
		classes->pause_deviation = pause / 2;
		return;
	}
	off = pause > classes->pause ? pause - classes->pause : classes->pause - pause;
	classes->pause_deviation += (off >> SMOOTH_SHIFT) - (classes->pause_deviation >> SMOOTH_SHIFT);
	classes->pause += (pause >> SMOOTH_SHIFT) - (classes->pause >> SMOOTH_SHIFT);
}

static u64 rest_after(const struct classes *classes)
{
	if (!classes->pause)
		return min(REST_AT_FIRST, classes->patience);
	return min(max(classes->pause + DEVIATIONS * classes->pause_deviation, REST_LEAST), classes->patience);
}

void session_let_in(struct classes *classes, struct request *request)
{
	u64 waited = request->handed_on - request->arrived;

	INIT_LIST_HEAD(&request->queue);
	request->is_in_time = waited + classes->limit.service <= request->flow->class->target.deadline;
}

/* Back in service, without a place. */
static void watch_on(struct classes *classes, struct request *request, u64 now)
{
	enter_service(classes, request, request->state, now);
	leave_place(classes, request);
	request->is_overdue = true;
}

/* In service without having waited. */
static void go_on(struct classes *classes, struct request *request, u64 now)
{
	bool has_place = !request->is_suspected && classes->gone_on_places < classes->limit.now;

	request->is_first = false;
	request->notices = 0;
	request->was_answered = false;
	request->has_rested = false;
	request->turns = HANDSHAKE_TURNS;
	if (!has_place) {
		watch_on(classes, request, now);
		requests_end_overdue(classes);
		return;
	}
	request->is_overdue = false;
	request->has_gone_on = true;
	classes->gone_on_places++;
	enter_service(classes, request, IN_FLIGHT, now);
}

void session_resume(struct classes *classes, const struct packet *packet, struct flow *flow, u32 class, bool is_suspected, u64 now)
{
	struct request *request = request_new(classes, packet, flow, &classes->class[class], is_suspected, now);

	if (!request)
		return;
	request->state = IN_FLIGHT;
	INIT_LIST_HEAD(&request->queue);
	request->flow->class->figures.packets++;
	go_on(classes, request, now);
}

/*
 * What the service needed for it, until it has spoken last; as long as it had a place. Not for one that has gone on: what has not waited
 * comes as often as its client likes, and may be a message that costs nothing.
 */
static void count_episode(struct classes *classes, struct request *request, u64 now)
{
	u64 took = request->spoke - request->handed_on;

	if (!request->was_answered || request->has_rested || !request->is_first)
		return;
	if (request->is_overdue)
		took = min(took, requests_overdue_after(classes));
	requests_answer_counts(classes, request->handed_on, request->handed_on, took, classes->places - !request->is_overdue, now);
}

void session_end(struct classes *classes, struct request *request, u64 now)
{
	count_episode(classes, request, now);
	request_count_unanswered(classes, request);
	leave_service(classes, request);
}

void session_expire(struct classes *classes, struct request *request, u64 now)
{
	if (!request->is_active || (request->is_first && !request->was_answered)) {
		session_end(classes, request, now);
		return;
	}
	count_episode(classes, request, now);
	take_out_of_service(classes, request);
	request->is_active = false;
	request->has_rested = true;
	watch_on(classes, request, now);
}

/* Whether it asks for nothing: no data, or in TLS the end of the connection, or a frame that acknowledges, or opens a window. */
static bool is_notice(const struct request *request, const struct packet *packet)
{
	return !packet->payload || (packet->is_notice && request->notices < NOTICES_MOST);
}

/* One that comes later than the service's answers do may be what the service has waited for: no pause of the service's is learned then. */
static void hear_notice(const struct classes *classes, struct request *request, u64 now)
{
	request->notices++;
	if (now - request->spoke > (classes->pause ?: rest_after(classes)))
		request->has_paused = true;
}

void session_heard(struct classes *classes, struct request *request, const struct packet *packet, u64 now)
{
	if (packet->payload)
		request->is_active = true;
	if (request->is_owed)
		return;
	if (is_notice(request, packet)) {
		if (packet->payload)
			hear_notice(classes, request, now);
		if (packet->is_fin && request->was_answered)
			session_end(classes, request, now);
		return;
	}
	session_owes(request);
	request->has_paused = false;
	if (request->turns < HANDSHAKE_TURNS && !request->is_overdue) {
		request->turns++;
		return;
	}
	count_episode(classes, request, now);
	take_out_of_service(classes, request);
	request->is_suspected = request_is_suspect(classes, &request->flow->key, now);
	go_on(classes, request, now);
}

/* Whether the service's first answer shows that this is no connection to be taken as a whole, whatever its client's first data were. */
static bool refutes(const struct classes *classes, const struct request *request, const struct packet *packet)
{
	return classes->protocol != TARN_CLASSES_CONNECTION && request->is_first &&
	       packet->answer != (request->is_h2 ? ANSWER_OF_H2 : ANSWER_OF_TLS);
}

/* Takes the service's first answer since the client went on, or at all. Returns whether the next data are a request of their own. */
static bool take_answer(struct classes *classes, struct request *request, const struct packet *packet, u64 now)
{
	bool is_refuted = refutes(classes, request, packet);

	if (suspects_are_there(&classes->suspects, now))
		suspects_answered(classes, &request->flow->key, now);
	if (!request->is_first)
		return false;
	request_count_answered(classes, request, request->is_in_time, request->handed_on - request->arrived);
	if (is_refuted && request->resets == classes->resets)
		request->flow->class->figures.connections--;
	if (packet->answer == (request->is_h2 ? ANSWER_OF_H2 : ANSWER_OF_TLS))
		set_bit(ntohs(packet->key.local_port), request->is_h2 ? classes->speaks_h2 : classes->speaks_tls);
	return is_refuted;
}

void session_spoke(struct classes *classes, struct request *request, const struct packet *packet, u64 now)
{
	bool ends = packet->is_reset || packet->is_fin;

	if (packet->payload) {
		if (!request->was_answered)
			ends |= take_answer(classes, request, packet, now);
		else if (!request->is_owed && !request->has_paused && now - request->spoke >= PAUSE_LEAST)
			learn_pause(classes, request, now);
		request->was_answered = true;
		request->is_owed = false;
		request->is_active = true;
		request->spoke = now;
	} else if (!ends) {
		return;
	}
	if (ends)
		session_end(classes, request, now);
	else if (!request->is_overdue)
		list_move_tail(&request->queue, &classes->resting);
}

u64 sessions_rest_at(struct classes *classes)
{
	const struct request *first = list_first_entry_or_null(&classes->resting, struct request, queue);

	return first ? first->spoke + rest_after(classes) : U64_MAX;
}

void sessions_rest(struct classes *classes, u64 now)
{
	while (now >= sessions_rest_at(classes)) {
		struct request *request = list_first_entry(&classes->resting, struct request, queue);

		count_episode(classes, request, now);
		leave_place(classes, request);
		request->is_overdue = true;
		request->has_rested = true;
	}
	requests_end_overdue(classes);
}
