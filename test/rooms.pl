#!/usr/bin/perl
# No module of the source includes a module that is not below it, and in no module files call each other in a circle.
#
# The modules, from the ground up.  These headers are what the engine promises: its modules
# keep it and the modules outside use it, and nothing else of the engine.
#
# Layers are counted by what the source uses, whatever the order here: a module, or a file
# outside of modules, stands one layer above the highest that it includes or whose functions
# it calls.
use strict;
use warnings;
use File::Find;
use FindBin;
use lib "$FindBin::RealBin/perl";
use KvText;

my %promised = map { ("engine/$_.h" => 1) } qw(engine store rows maintenance change);
my @rooms = qw(admission base io format xact index value shard version cache buffer flush split compact durable scan write lifecycle checkpoint restart engine table feed protocol process connection served batch memcached fdw module);
my %floor = map { $rooms[$_] => $_ } 0 .. $#rooms;

sub room { $_[0] =~ m{^(?:engine/|memcached/)?(\w+)/[^/]+$} ? $1 : 'module' }
sub place { my $room = room($_[0]); $room =~ /^(?:engine|module)$/ ? $_[0] : $room }

# May only files of its own module include it?
sub private_header { my ($header) = @_; $header =~ /internal\.h$/ || slurp("src/$header") =~ /No\s+other\s+module[\s*]+includes\s+this\s+file/ }

# The heights of places, by what each of them uses, and the circles among them.
sub heights
{
	my ($uses) = @_;
	my (%height, $height, @path, @circles);
	$height = sub {
		my ($place) = @_;
		return $height{$place} if $height{$place};
		if (exists $height{$place})
		{
			my ($from) = grep { $path[$_] eq $place } 0 .. $#path;
			push @circles, join ' → ', @path[$from .. $#path], $place;
			return 0;
		}
		$height{$place} = 0;
		push @path, $place;
		my $below = 0;
		for (map { $height->($_) } grep { $_ ne $place } sort keys %{$uses->{$place}}) { $below = $_ if $_ > $below }
		pop @path;
		return $height{$place} = $below + 1;
	};
	$height->($_) for sort keys %$uses;
	return (\%height, @circles);
}

my (%arrows, $files, %uses, %names, %named, %defined, %file_of);
find({ no_chdir => 1, wanted => sub {
	return unless m{^src/(.*\.[ch])$};
	my ($file, $from) = ($1, room($1));
	my $text = slurp($_);
	$files++;
	while ($text =~ /^(.*)\n(kv_\w+)\([^;{]*\)\n\{/mg)
	{
		my ($type, $function) = ($1, $2);
		$defined{$function} = place($file);
		$file_of{$function} = $file unless $type =~ /\bstatic\b/;
	}
	my $code = $text =~ s{/\*.*?\*/|"[^"\n]*"|^extern [^;]*;|^#define \w+}{}gsmr;
	$names{$file}{$_} = $named{place($file)}{$_} = 1 for $code =~ /\b(kv_\w+)\b/g;
	for my $header (grep { -e "src/$_" } $text =~ /^#include "(\S+)"/mg)
	{
		$uses{place($file)}{place($header)} = 1;
		next unless $header =~ m{/};
		my $to = room($header);
		die "not ok - $file: \"$from\" or \"$to\" is no module\n" if grep { !exists $floor{$_} } $from, $to;
		next if $promised{$header} && $file !~ m{^engine/base/};
		$arrows{"$file includes $header, which"} = 1 if $floor{$to} > $floor{$from}
			|| ($header =~ /^engine/ && $file !~ /^engine/) || ($to ne $from && private_header($header));
	}
} }, 'src');

for my $place (keys %named) { $uses{$place}{$_} = 1 for grep { defined } @defined{keys %{$named{$place}}} }
my ($height, @circles) = heights(\%uses);
my %height = %$height;
my ($top) = sort { $b <=> $a } values %height;
for my $n (reverse 1 .. $top) { print "# layer $n: ", join(' ', grep { $height{$_} == $n } sort keys %height), "\n" }
print "# layers: $top\n";
$files or die "there is no source\n";
ok_if_none('modules include and call modules below them',
	(map { "$_ is a circle" } @circles), map { "$_ is an arrow upwards" } sort keys %arrows);

my %calls;
for my $file (grep { /\.c$/ } keys %names)
{
	$calls{$file}{$_} = 1 for grep { room($_) eq room($file) } grep { defined } @file_of{keys %{$names{$file}}};
}
my (undef, @file_circles) = heights(\%calls);
%calls or die "no file calls another\n";
ok_if_none('in each module files call files below them', map { "$_ is a circle of calls" } @file_circles);

# ---- sizes ----
my (@sources, @long_files, @long_functions);
find({ no_chdir => 1, wanted => sub { push @sources, $_ if /\.[ch]$/ } }, 'src');
for my $file (sort @sources)
{
	my $text = slurp($file);
	my $lines = () = $text =~ /\n/g;
	push @long_files, "$file has $lines lines" if $lines > 900;
	while ($text =~ /^(\w+)\([^;{}]*\)\n\{\n(.*?)^\}/gms)
	{
		my ($function, $body) = ($1, $2);
		my $of_it = () = $body =~ /\n/g;
		push @long_functions, "$function() of $file has $of_it lines" if $of_it > 100;
	}
}
ok_if_none('no file has more than 900 lines', @long_files);
ok_if_none('no function has more than 100 lines', @long_functions);
