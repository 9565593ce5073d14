<?php
// Sends a request's body back.
header('Content-Type: text/plain');
echo file_get_contents('php://input');
