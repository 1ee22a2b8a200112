# Promise: while all sessions want more than there is, each has its share by its weight; what the view
# says of that is so; and the limit can be chosen by measurement.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Select;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvGate;

my $processors = POSIX::sysconf(84) || 2;    # _SC_NPROCESSORS_ONLN
my $many = $processors > 4 ? 10 * $processors : 40;
my $node = gate_cluster('share', max_connections => $many + 40);
my $boss = boss();
my @feeders;
# the setting of a role in a database goes before the role's, and that before the database's
$boss->ask('CREATE ROLE gold LOGIN; ALTER ROLE gold SET kvfdw.admission_weight = 2');
$boss->ask('ALTER ROLE gold IN DATABASE postgres SET kvfdw.admission_weight = 4');
$boss->ask('INSERT INTO t VALUES (1, 0); GRANT ALL ON t TO gold');

# Sessions to which more requests are sent than they read, in a process of their own that does not
# look at the answers: how many are executed is up to the server, however slow the clients are.
sub feed
{
	my ($role, $number, $sql) = @_;
	my $requests = ('Q' . pack('N', 5 + length $sql) . "$sql\0") x 1000;
	my @sockets = map { session(user => $role)->{socket} } 1 .. $number;
	my %rest = map { $_ => '' } @sockets;
	my $all = IO::Select->new(@sockets);
	$_->blocking(0) for @sockets;
	while (my ($readable, $writable) = IO::Select->select($all, $all))
	{
		for my $socket (@$writable)
		{
			$rest{$socket} = $requests if $rest{$socket} eq '';
			substr($rest{$socket}, 0, syswrite($socket, $rest{$socket}) // 0, '');
		}
		for my $socket (@$readable) { sysread($socket, my $answers, 1 << 20) or return }
	}
}

sub clients
{
	my ($role, $number, $sql) = @_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		close $boss->{socket};
		eval { feed($role, $number, $sql) };
		POSIX::_exit(1);
	}
	push @feeders, $pid;
	return wait_for("clients of $role", 180, sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = '$role'") == $number });
}

sub kill_feeders { kill 'KILL', @feeders; waitpid $_, 0 for splice @feeders; return }
END { my $code = $?; kill_feeders(); $? = $code }

sub stop_clients
{
	kill_feeders();
	return wait_for('clients to go', 180, sub { $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename IN ('web', 'gold')}) == 0 });
}

# Of web, and of gold.
sub requests { return split / /, $node->safe_psql('postgres', q{SELECT string_agg(requests::text, ' ' ORDER BY role DESC) FROM kvfdw_stat_admission_roles WHERE role IN ('web', 'gold')}) }

# Requests that both have had while web had so many.
sub served
{
	my ($number) = @_;
	my @before = requests();
	my @after;
	wait_for('requests', 180, sub { @after = requests(); $after[0] - $before[0] >= $number });
	return map { $after[$_] - $before[$_] } 0, 1;
}

clients($_, 6, 'SELECT count(*) FROM generate_series(1, 3000)') for 'web', 'gold';
wait_for('a queue', 180, sub { admission('waiting') >= 10 });
my ($web, $gold) = served(300);
my $ratio = $gold / $web;
note "web $web, gold $gold";
# where processors are short, who has had a turn is late to ask for the next one, and misses some
ok($ratio > 2.5 && $ratio < 6, "a weight of 4 gives about four times as many requests") or diag $ratio;
is($node->safe_psql('postgres', q{SELECT string_agg(role || ' ' || weight || ' ' || sessions, ', ' ORDER BY role) FROM kvfdw_stat_admission_roles WHERE role IN ('web', 'gold')}),
	'gold 4 6, web 1 6', 'the view has weights and sessions');
wait_for('metrics', 180, sub { admission('variability') > 0 });
# the first windows began before all were there
ok(wait_for('an even window', 180, sub { admission('jain') > 0.9 }), 'requests by weight are even');
ok(wait_for('a throughput', 180, sub { admission('throughput') > 0 }), 'there is a throughput');

# ---- where a weight comes from ----
$boss->ask("CREATE DATABASE $_") for qw(light heavy);
$boss->ask('ALTER DATABASE light SET kvfdw.admission_weight = 0; ALTER DATABASE heavy SET kvfdw.admission_weight = 9');
$boss->ask('CREATE ROLE plain LOGIN; CREATE ROLE silver LOGIN; ALTER ROLE silver IN DATABASE light SET kvfdw.admission_weight = 3');
sub weight_in
{
	my ($role, $database) = @_;
	my $session = session(user => $role, database => $database);
	$session->ask('SELECT 1');
	my $weight;
	# the session before it may not have ended yet
	wait_for('one session', 180, sub { (my $sessions, $weight) = split /[|]/, $node->safe_psql('postgres', "SELECT sessions, weight FROM kvfdw_stat_admission_roles WHERE role = '$role'"); $sessions == 1 });
	return $weight;
}
is(weight_in('plain', 'light'), 0, 'a database\'s weight');
is(weight_in('plain', 'heavy'), 9, '... another one\'s');
is(weight_in('plain', 'postgres'), 1, '... and that of one without');
is(weight_in('silver', 'light'), 3, 'a role\'s in a database goes before the database\'s');
is(weight_in('silver', 'heavy'), 9, '... and holds there alone');
$boss->ask('ALTER ROLE silver SET kvfdw.admission_weight = 5');
is(weight_in('silver', 'heavy'), 5, 'a role\'s goes before the database\'s');
is(weight_in('silver', 'light'), 3, '... not before its own in that database');
my $changed = session(user => 'plain');
$changed->ask('SELECT 1');
reload('admission_weight', 7);
wait_for('the new weight', 180, sub { $changed->ask('SELECT 1'); $node->safe_psql('postgres', "SELECT weight FROM kvfdw_stat_admission_roles WHERE role = 'plain'") == 7 });
pass('a reload changes the weight of sessions that have no other');
undef $changed;
is(weight_in('silver', 'light'), 3, '... alone');
is(($node->psql('light', 'SET ROLE plain; SET kvfdw.admission_weight = 100'))[0], 3, 'nobody but a superuser gives himself another');
reload('admission_weight', 1);
reload('admission_quota', 8, 'quota', 8);
my ($before) = admission('grants');
my ($w, $g) = served(400);
my $turns = admission('grants') - $before;
note "$turns turns for $w and $g requests";
cmp_ok($turns, '<', ($w + $g) / 4, 'with a larger quota there are fewer turns');
reload('admission_quota', 0);
reload('admission_unfairness', 0.0001);
wait_for('a quota of 1', 180, sub { admission('quota') == 1 });
pass('the quota is lowered where a bound is reached');
reload('admission_unfairness', 0);
reload('admission_variability', 0);
wait_for('a larger quota', 180, sub { admission('quota') > 1 });
pass('... and raised where there is none');
stop_clients();

# ---- the limit by measurement ----
my ($rc, $out, $err) = $node->psql('postgres', 'SELECT kvfdw_admission_tune()');
like($err, qr/cannot choose an admission limit while "kvfdw.admission_limit" is \d+/, 'a limit that is set is not chosen');
($rc, $out, $err) = $node->psql('postgres', 'SET ROLE web; SELECT kvfdw_admission_tune()');
like($err, qr/permission denied/, 'nobody but a superuser may have it chosen');
reload('admission_sample', "'150ms'");
reload('admission_limit', 0, 'session_limit', '');
$node->safe_psql('postgres', 'SELECT kvfdw_admission_tune()');
wait_for('the log', 180, sub { slurp_file($node->logfile) =~ /could not choose an admission limit: \d+ busy sessions are too few/ });
pass('without clients no limit is chosen');
clients('web', $many, 'UPDATE t SET v = v + 1 WHERE k = 1');

# One at a time: who asks while one is under way asks for another.
my $ends = sub { return scalar(() = slurp_file($node->logfile) =~ /(?:has chosen|could not choose)[^\n]* admission limit/g) };
wait_for('a choice', 180, sub {
	my $before = $ends->();
	$node->safe_psql('postgres', 'SELECT kvfdw_admission_tune()');
	wait_for('the end of a measurement', 180, sub { $ends->() > $before && admission('tuning') eq 'f' });
	admission('last_tuned') ne '' });
is(admission(q{last_tuned BETWEEN now() - interval '10 minutes' AND clock_timestamp() + interval '1 second'}), 't', 'when that was is told');
my $limits = admission('tuned_limits');
like($limits, qr/^\{\d+(,\d+)+,0\}$/, 'throughput is measured at several limits, and without one');
my $limit = admission('session_limit');
ok($limit eq '' || $limits =~ /[{,]$limit[,}]/, 'one of them is in force') or diag "$limit of $limits";
is(admission('cardinality(tuned_throughputs) = cardinality(tuned_limits) AND 0 < ALL (tuned_throughputs)'), 't', 'each has a throughput');
# another one, which lasts until they are gone
reload('admission_sample', "'2s'");
$node->safe_psql('postgres', 'SELECT kvfdw_admission_tune()');
wait_for('the measurement', 180, sub { admission('tuning') eq 't' });
stop_clients();
wait_for('it to be given up', 180, sub { admission('tuning') eq 'f' });
is(admission('session_limit'), $limit, 'a measurement is given up when the clients go, and the limit is as it was');
$node->stop;

# ---- the model by itself ----
SKIP:
{
	my $dir = $PostgreSQL::Test::Utils::tmp_check;
	append_to_file("$dir/model.c", <<'END');
#include "postgres.h"
#include "admission/internal.h"
#include <math.h>
#include <stdlib.h>
#undef printf

double		kv_admission_unfairness = 0.1;
double		kv_admission_variability = 0.4;

static double
noise(double part)
{
	double		sum = 0;

	for (int i = 0; i < 12; i++)
		sum += rand() / (RAND_MAX + 1.0);
	return exp(part * (sum - 6));
}

/* busy sessions, the best limit, how steeply throughput falls beside it, noise, variability */
static double
climb(int busy, double best, double steep, double part, double variability)
{
	double		drift = 1;
	int			samples = 0;

	if (!kv_climb_propose(4, busy))
		return -1;
	for (bool more = true; more; samples++)
	{
		int			limit = kv_climb_limit();
		double		x = log((limit == 0 ? busy : limit) / best);
		KvAdmitPoint sample = {.limit = limit};

		drift *= noise(part / 2);
		sample.throughput = 3000 * exp(-steep * x * x) * drift * noise(part);
		sample.variability = limit == 0 ? variability : 0.3;
		more = kv_climb_take(&sample);
	}
	return samples > 100 ? -2 : kv_climb_place();
}

int
main(int argc, char **argv)
{
	KvAdmitPoint points[3] = {0};

	/* bounds, given; of the place and of another limit: limit, unfairness, variability */
	if (strcmp(argv[1], "border") == 0)
	{
		kv_admission_unfairness = atof(argv[2]);
		kv_admission_variability = atof(argv[3]);
		for (int i = 0; i < 2; i++)
		{
			points[i].limit = atoi(argv[5 + 3 * i]);
			points[i].unfairness = atof(argv[6 + 3 * i]);
			points[i].variability = atof(argv[7 + 3 * i]);
		}
		printf("%.3f\n", exp(kv_model_border(&points[0], &points[1], atof(argv[4]))));
		return 0;
	}
	/* the least and the largest limit that a hundred climbs end at */
	if (strcmp(argv[1], "climb") == 0)
	{
		int			low = 1 << 20;
		int			high = -10;

		for (int i = 0; i < 100; i++)
		{
			int			place = climb(atoi(argv[2]), atof(argv[3]), atof(argv[4]), atof(argv[5]), atof(argv[6]));

			low = Min(low, place);
			high = Max(high, place);
		}
		printf("%d %d\n", low, high);
		return 0;
	}
	for (int i = 0; i < 3; i++)
	{
		points[i].limit = atoi(argv[1 + 2 * i]);
		points[i].throughput = atof(argv[2 + 2 * i]);
	}
	printf("%d\n", kv_model_peak(points, 1, points[2].limit));
	return 0;
}
END
	my $src = "$FindBin::RealBin/../../src";
	my $config = $ENV{KV_PG_CONFIG} || 'pg_config';
	my $include = `$config --includedir-server`;
	chomp $include;
	system("cc -w -D_GNU_SOURCE -I$src -I$include -o $dir/model $dir/model.c $src/admission/climb.c $src/admission/model.c -lm") == 0
		or skip 'there is no compiler', 25;
	my $model = sub { my $peak = `$dir/model @_`; chomp $peak; return $peak };
	# published measurements of AppleS, and what it chose
	is($model->(8, 7411.64, 32, 5670.29, 128, 5143.94), 11, 'the peak of the model');
	is($model->(8, 8427.51, 32, 5502.28, 128, 5176.22), 9, '... for the second of the published measurements');
	is($model->(8, 7406.85, 32, 5908.03, 128, 5290.27), 11, '... and the third');
	is($model->(8, 474, 32, 802, 200, 758), 27, '... and where the peak is between the second and the third point');
	is($model->(8, 100, 32, 500, 128, 400), 0, 'no model goes through a throughput that grows faster than the limit');
	is($model->(8, 100, 32, 200, 128, 600), 0, '... nor through one that bends up');
	is($model->(8, 100, 32, 0, 128, 0), 0, '... nor through nothing');

	# how much better another limit must be: bounds of 0.1 and 0.4
	my $border = sub { return $model->('border', @_) };
	my @even = (0.05, 0.3);
	is($border->(0.1, 0.4, 0, 16, @even, 8, @even), '1.010', 'another limit must be 1 % better');
	is($border->(0.1, 0.4, 0, 16, @even, 0, @even), '1.010', '... and so must no limit that is as even');
	is($border->(0.1, 0.4, 0, 16, 0.05, 1.5, 8, @even), '0.952', 'it may be worse where latency varies much more');
	is($border->(0.1, 0.4, 0, 16, 0.5, 0.3, 8, @even), '0.952', '... or which is unfair');
	is($border->(0.1, 0.4, 0.02, 16, 0.5, 0.3, 8, @even), '0.972', '... less if something was given up before');
	is($border->(0.1, 0.4, 0.2, 16, 0.5, 0.3, 8, @even), '1.000', '... and not at all where that was enough');
	is($border->(0.1, 0.4, 0, 8, @even, 16, 0.05, 1.5), '1.050', '... and must be better in the opposite case');
	is($border->(0.1, 0.4, 0, 8, @even, 16, 0.05, 0.37), '1.010', '... not where that is within the bound');
	is($border->(0.1, 0.4, 0, 8, 0.12, 1.5, 16, 0.14, 1.8), '1.010', '... nor where it is hardly more');
	is($border->(0, 0, 0, 8, @even, 16, 5, 5), '1.010', '... nor where there is no bound');
	is($border->(0.1, 0.4, 0, 8, @even, 0, 0.05, 1.5), '1.500', 'no limit must be half as good again');
	is($border->(0.1, 0.4, 0, 0, 0.05, 1.5, 181, @even), '0.667', '... the other way round');

	# climbs, with loads that are replayed: sessions, best limit, steepness, noise, variability without a limit
	is($model->('climb', 6, 4, 0.3, 0.02, 1.5), '-1 -1', 'with few sessions there is nothing to climb');
	is($model->('climb', 200, 8, 0.5, 0.02, 1.5), '8 8', 'the best limit is found');
	is($model->('climb', 200, 64, 0.5, 0.02, 1.5), '64 64', '... a large one too');
	my $within = sub { my ($what, $least, $most, @load) = @_;
		my ($low, $high) = split ' ', $model->('climb', @load);
		ok($low >= $least && $high <= $most, $what) or diag "$low to $high" };
	$within->('... and near it with 8 sessions per processor', 6, 11, 16, 8, 0.5, 0.02, 1.5);
	$within->('... or its neighbour, where throughput varies by 8 %', 8, 32, 200, 16, 0.4, 0.08, 1.5);
	is($model->('climb', 200, 1000, 0.2, 0.02, 0.3), '0 0', 'no limit is chosen where each costs throughput');
}
done_testing();
