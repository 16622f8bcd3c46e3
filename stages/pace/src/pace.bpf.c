// SPDX-License-Identifier: GPL-2.0-only
/*
 * tarn_pace, as the kernel's TCP calls it: what core/ decides, put into effect.
 *
 * The kernel holds the socket's lock at every call. What a connection knows lies where the kernel keeps that for any congestion
 * control (icsk_ca_priv); the kernel clears it when a connection takes another one.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "connections.h"

#define PACE_LOOK_CLOSER(socket) look_closer(socket)
struct pace_socket;
static __always_inline void look_closer(struct pace_socket *socket);

#include "core/core.h"

char LICENSE[] SEC("license") = "GPL";

/* What cong_control() gets where: see sample_of(). */
const volatile bool two_arguments = false;

/* Settable while connections run; the agent puts the configured ones here before the program is registered. */
struct pace_parameters parameters = {};

/* What connections have come to that have answered a drop: for connections.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pace_history);
} history SEC(".maps");

static __always_inline struct pace *pace_of(struct sock *sk)
{
	return (struct pace *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

/* Packets sent and neither acknowledged nor lost, as tcp_packets_in_flight() of the kernel. */
static __always_inline __u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

static __always_inline void look_closer(struct pace_socket *socket)
{
	const struct tcp_sock *tp = socket->kernel;

	socket->lost = tp->lost;
	socket->srtt_us = tp->srtt_us >> 3;
	socket->peer_ms = tp->rx_opt.rcv_tsval;
}

/* What is wanted at every acknowledgement. */
static __always_inline struct pace_socket glance_at(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	return (struct pace_socket){
		.kernel = tp,
		.now_us = tp->tcp_mstamp,
		.in_flight = in_flight(tp),
		.window = tp->snd_cwnd,
		.window_most = tp->snd_cwnd_clamp,
		.delivered = tp->delivered,
		.mss = tp->mss_cache,
		.pacing = sk->sk_pacing_rate,
		.pacing_most = sk->sk_max_pacing_rate,
	};
}

static __always_inline struct pace_socket socket_of(struct sock *sk)
{
	struct pace_socket socket = glance_at(sk);

	look_closer(&socket);
	return socket;
}

SEC("struct_ops")
void BPF_PROG(begin, struct sock *sk)
{
	struct pace_socket socket = socket_of(sk);
	struct pace_decision decision;

	pace_begin(pace_of(sk), &parameters, &socket, &decision);
	sk->sk_pacing_rate = decision.pacing;
	/* Without a queueing discipline that paces (fq), TCP does it itself. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/*
 * The sample of cong_control(), by its place among the arguments. In assembly, because the compiler would compute the place first
 * and load once, which the verifier refuses ("dereference of modified ctx ptr").
 */
static __always_inline const struct rate_sample *sample_of(void *context)
{
	const struct rate_sample *sample;

	if (two_arguments)
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(sample) : "r"(context));
	else
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(sample) : "r"(context));
	return sample;
}

/* The state has changed: whether a response begins, or is over. Where memory is short, nothing is noted. */
static __always_inline void note(struct sock *sk, __u32 state, __u32 before, __u64 now_us)
{
	__u32 now = estimate(pace_of(sk));
	struct pace_history *noted;

	if (state != STATE_RESPONSE && pace_of(sk)->state != STATE_RESPONSE)
		return;
	noted = bpf_sk_storage_get(&history, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!noted)
		return;
	if (noted->began_us) {
		noted->drained_us += now_us - noted->began_us;
		noted->began_us = 0;
	}
	if (state != STATE_RESPONSE) {
		noted->responses++;
		noted->depth = before > now ? (__u32)((((__u64)(before - now)) << 8) / before) : 0;
		noted->began_us = now_us;
	}
}

SEC("struct_ops")
void acknowledged(__u64 *context)
{
	const struct rate_sample *rs = sample_of(context);
	struct sock *sk = (struct sock *)context[0];
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct pace_socket socket = glance_at(sk);
	struct pace_decision decision;
	__u32 state = pace_of(sk)->state, rate = estimate(pace_of(sk));
	struct pace_sample sample = {
		.delivered = rs->delivered,
		.interval_us = rs->interval_us,
		.rtt_us = rs->rtt_us,
		.prior_delivered = rs->prior_delivered,
		.prior_in_flight = rs->prior_in_flight,
		.losses = rs->losses,
		.acked = rs->acked_sacked,
		.app_limited = rs->is_app_limited,
		.ack_delayed = rs->is_ack_delayed,
	};

	pace_acknowledged(pace_of(sk), &parameters, &socket, &sample, &decision);
	sk->sk_pacing_rate = decision.pacing;
	tp->snd_cwnd = decision.window;
	if (pace_of(sk)->state == state)
		return;
	note(sk, state, rate, socket.now_us);
	/* A connection that fq has paced would be paced by nobody. */
	if (parameters.left && sk->sk_pacing_status == SK_PACING_FQ)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* The model knows the window; this only says that recovery begins. */
SEC("struct_ops")
__u32 BPF_PROG(recovers, struct sock *sk)
{
	struct pace_socket socket = socket_of(sk);

	pace_recovers(pace_of(sk), &socket);
	return ((struct tcp_sock *)sk)->snd_ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(undoes, struct sock *sk)
{
	pace_undoes(pace_of(sk));
	return ((struct tcp_sock *)sk)->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(enters, struct sock *sk, __u8 ca_state)
{
	pace_enters(pace_of(sk), ca_state);
}

/* What comes next goes on at about the rate that was, instead of looking for it from a window that was never bounded. */
SEC("struct_ops")
void BPF_PROG(ends, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 product = packets_at(pace_of(sk), estimate(pace_of(sk)), GAIN_ONE);

	if (pace_of(sk)->full)
		tp->snd_ssthresh = most(tp->snd_cwnd, product);
}

static __always_inline void restart(struct sock *sk)
{
	struct pace_socket socket = socket_of(sk);
	struct pace_decision decision;

	if (pace_restarts(pace_of(sk), &socket, ((struct tcp_sock *)sk)->app_limited != 0, &decision))
		sk->sk_pacing_rate = decision.pacing;
}

SEC("struct_ops")
void BPF_PROG(event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		restart(sk);
}

SEC("struct_ops")
void BPF_PROG(restarts, struct sock *sk)
{
	restart(sk);
}

/* What is in flight, what recovery sends besides, and what the application writes meanwhile, as for BBR. */
SEC("struct_ops")
__u32 BPF_PROG(buffers, struct sock *sk)
{
	return 3;
}

SEC("struct_ops")
__u32 BPF_PROG(least_burst, struct sock *sk)
{
	return sk->sk_pacing_rate < BURST_SLOW ? 1 : 2;
}

SEC(".struct_ops")
struct tcp_congestion_ops tarn_pace = {
	.init = (void *)begin,
	.release = (void *)ends,
	.cong_control = (void *)acknowledged,
	.ssthresh = (void *)recovers,
	.undo_cwnd = (void *)undoes,
	.set_state = (void *)enters,
	.cwnd_event = (void *)event,
	.cwnd_event_tx_start = (void *)restarts,
	.sndbuf_expand = (void *)buffers,
	.min_tso_segs = (void *)least_burst,
	.name = "tarn_pace",
	/* As bbr and cubic: any namespace can make it its default, any process can ask for it. */
	.flags = TCP_CONG_NON_RESTRICTED,
};
