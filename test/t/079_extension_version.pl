# Promise: a library that meets the objects of another version of the extension says so, and shows nothing under a
# wrong name.  Objects whose columns are the same work.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no extension' if heap_only();
my $node = kv_cluster('update');
my $version = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'kvfdw'});
is($node->safe_psql('postgres', q{SELECT string_agg(version, ' ') FROM pg_available_extension_versions WHERE name = 'kvfdw'}), $version,
	'there is one version, so there is nothing to update from');

# Each function that returns a row, with one column less, as a version before may have had it.
my @functions = map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', q{
	SELECT proname, proretset, (SELECT string_agg(format('OUT %I %s', name, format_type(type, NULL)), ', ' ORDER BY n)
		FROM unnest(proargnames, proallargtypes) WITH ORDINALITY a (name, type, n) WHERE n < cardinality(proallargtypes))
	FROM pg_proc WHERE proname ~ '^kvfdw_stat_get_|^kvfdw_memcached_' ORDER BY 1});
cmp_ok(scalar(@functions), '>', 5, 'there are functions of views');
$node->safe_psql('postgres', 'CREATE SCHEMA before');
for my $function (@functions)
{
	my ($name, $set, $columns) = @$function;
	my $returns = $set eq 't' ? 'RETURNS SETOF record' : '';
	$node->safe_psql('postgres', "CREATE FUNCTION before.$name($columns) $returns AS '\$libdir/kvfdw' LANGUAGE C STRICT VOLATILE");
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT * FROM before.$name()");
	like($err, qr/ERROR:  55000: extension "kvfdw" of this database has another version/, "$name with other columns: refused");
	is($node->psql('postgres', "SELECT * FROM $name()"), 0, '... and with its own not');
}
$node->stop;
done_testing();
