<!doctype html>
<title>Stages</title>
<h1>Stages of the caravan</h1>
<p>Visit {{ $visits }}</p>
<ul>
@foreach ($stages as $stage)
    <li class="{{ $loop->even ? 'even' : 'odd' }}"><a href="{{ url('/stage/' . $stage) }}">Stage {{ $stage }}</a>
@endforeach
</ul>
<form method="post">@csrf</form>
