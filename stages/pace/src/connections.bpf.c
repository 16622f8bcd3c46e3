// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lists the connections that use the congestion control: an iterator over the TCP sockets of a network namespace, which costs nothing
 * until somebody runs it.
 *
 * The kernel holds the socket's lock while the program reads it.
 */
#include "sockets.h"

#include "core/model.h"
#include "connections.h"

char LICENSE[] SEC("license") = "GPL";

/* The congestion control's own (pace.bpf.c), given when this is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pace_history);
} history SEC(".maps");

/* The one that is listed now. Each list loads a program of its own, which looks at one socket after the other. */
struct pace_connection connection;

static __always_inline void model_of(const struct pace *pace, __u32 mss)
{
	connection.state = pace->state;
	connection.competing = pace->competing >= COMPETING;
	connection.bounded = pace->bound != 0;
	connection.min_rtt_us = pace->min_rtt_us == UNKNOWN ? 0 : pace->min_rtt_us;
	/* Packets a microsecond, times 2^24: below 2^(30 + 16 - 24 + 20) = 2^42 bytes a second. */
	connection.rate = (((__u64)estimate(pace) * mss) >> 8) * 1000000 >> (RATE_BITS - 8);
}

/* What only this program reads. */
struct tcp_sock___written {
	__u32 write_seq;	/* up to there the application has written */
} __attribute__((preserve_access_index));

/* TCP itself marks a connection as limited by its application only once that has sent something. */
static __always_inline bool is_idle(const struct tcp_sock *tp)
{
	return !tp->packets_out && ((const struct tcp_sock___written *)tp)->write_seq == tp->snd_nxt;
}

static __always_inline __u32 limit_of(const struct tcp_sock *tp)
{
	if (tp->app_limited || is_idle(tp))
		return LIMIT_APPLICATION;
	if (tp->snd_nxt - tp->snd_una + tp->mss_cache > tp->snd_wnd)
		return LIMIT_RECEIVER;
	return connection.in_flight >= connection.window ? LIMIT_WINDOW : LIMIT_PACE;
}

SEC("iter/tcp")
int list(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct pace_history *history_of_it;
	struct tcp_sock *tp;
	struct pace pace;

	if (!common || !sends(common->skc_state))
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp || !uses_it((struct inet_connection_sock *)tp))
		return 0;
	if (bpf_probe_read_kernel(&pace, sizeof(pace), ((struct inet_connection_sock *)tp)->icsk_ca_priv))
		return 0;
	__builtin_memset(&connection, 0, sizeof(connection));
	if (!peer_of(common, connection.peer) || !local_of(common, connection.local))
		return 0;
	connection.peer_port = bpf_ntohs(common->skc_dport);
	connection.port = common->skc_num;
	model_of(&pace, tp->mss_cache);
	connection.rtt_us = tp->srtt_us >> 3;
	connection.pacing = ((struct sock *)tp)->sk_pacing_rate;
	connection.window = tp->snd_cwnd;
	connection.in_flight = tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
	connection.retransmitted = tp->total_retrans;
	connection.limit = limit_of(tp);
	connection.acked = tp->bytes_acked;
	history_of_it = bpf_sk_storage_get(&history, tp, 0, 0);
	if (history_of_it)
		connection.history = *history_of_it;
	bpf_seq_write(context->meta->seq, &connection, sizeof(connection));
	return 0;
}
